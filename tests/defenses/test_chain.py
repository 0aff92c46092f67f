"""Chains: how decisions become one, failures included."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.outcome import ALLOWED, Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.protocols import BatchLimits
from guardmark.core.sample import Prompt, View
from guardmark.defenses.baseline import Constant
from guardmark.defenses.chain import ChainDefense, ChainRule, ChainSettings, combine
from guardmark.defenses.guard import inline_call

PROMPT = Prompt.of_text("hello")
_FAIL = Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.TIMEOUT)
_SAID = {
    "b": Decision(outcome=Outcome.BLOCK),
    "a": ALLOWED,
    "e": _FAIL,
    "m": Decision(outcome=Outcome.MALFORMED),
}


def _ask(letters: str, rule: ChainRule, *, short: bool = True) -> Outcome:
    members = [Constant(f"{n}{c}", _SAID[c]) for n, c in enumerate(letters)]
    chain = ChainDefense("chain", members, rule=rule, short_circuit=short)
    return inline_call(chain)(PROMPT).outcome


@pytest.mark.parametrize(
    ("rule", "votes", "outcome"),
    [
        (ChainRule.ANY, "aab", "block"),
        (ChainRule.ANY, "aaa", "allow"),
        (ChainRule.ANY, "eb", "block"),
        (ChainRule.ANY, "ea", "error"),
        (ChainRule.ANY, "ma", "malformed"),
        (ChainRule.ALL, "bbb", "block"),
        (ChainRule.ALL, "bba", "allow"),
        (ChainRule.ALL, "be", "error"),
        (ChainRule.ALL, "ea", "allow"),
        (ChainRule.MAJORITY, "bba", "block"),
        (ChainRule.MAJORITY, "ba", "allow"),
        (ChainRule.MAJORITY, "bea", "error"),
        (ChainRule.MAJORITY, "bbe", "block"),
        (ChainRule.MAJORITY, "aae", "allow"),
        (ChainRule.FIRST, "ab", "allow"),
        (ChainRule.FIRST, "eb", "block"),
        (ChainRule.FIRST, "em", "error"),
    ],
)
def test_votes_become_one_decision(rule: ChainRule, votes: str, outcome: str) -> None:
    """A failure decides nothing, and hides nothing it could have decided."""
    assert _ask(votes, rule) == outcome
    assert _ask(votes, rule, short=False) == outcome


@given(st.text(st.sampled_from("baem"), min_size=1, max_size=7), st.sampled_from(ChainRule))
def test_stopping_early_never_changes_the_outcome(votes: str, rule: ChainRule) -> None:
    """Short circuits save time, not accuracy."""
    early, late = _ask(votes, rule), _ask(votes, rule, short=False)
    answered = {Outcome.ALLOW, Outcome.BLOCK}
    assert early == late or not {early, late} & answered


@given(st.text(st.sampled_from("baem"), min_size=1, max_size=7))
def test_a_chain_of_any_and_one_of_all_mirror_each_other(votes: str) -> None:
    """Exchanging block and allow exchanges the two rules."""
    mirrored = votes.translate(str.maketrans("ab", "ba"))
    swap = {Outcome.ALLOW: Outcome.BLOCK, Outcome.BLOCK: Outcome.ALLOW}
    one, other = _ask(votes, ChainRule.ANY), _ask(mirrored, ChainRule.ALL)
    assert swap.get(one, one) == other


def _scored(score: float | None, outcome: Outcome = Outcome.ALLOW) -> Decision:
    kind = ScoreKind.CLASS_PROB if score is not None else ScoreKind.NONE
    return Decision(outcome=outcome, score=score, score_kind=kind)


def test_the_score_is_the_highest_of_any_and_the_lowest_of_all() -> None:
    """And it is absent as soon as one member has none."""
    votes = [("x", _scored(0.2)), ("y", _scored(0.4))]
    assert combine(votes, 2, ChainRule.ANY).score == 0.4
    assert combine(votes, 2, ChainRule.ALL).score == 0.2
    assert combine([*votes, ("z", _scored(None))], 3, ChainRule.ANY).score is None
    assert combine(votes, 3, ChainRule.MAJORITY).score is None


def test_the_reason_names_the_member() -> None:
    """A block is somebody's."""
    said = Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason="rule 7"))
    chain = ChainDefense("c", [Constant("lax", ALLOWED), Constant("strict", said)])
    decision = inline_call(chain)(PROMPT)
    assert decision.evidence is not None
    assert decision.evidence.reason == "strict: rule 7"
    assert [c.flagged for c in decision.evidence.categories] == [False, True]


class _Slow:
    view = View.TEXT

    def __init__(self, name: str, latency_ns: int) -> None:
        self.name = name
        self.latency_ns = latency_ns

    async def decide(self, prompt: Prompt) -> Decision:  # noqa: ARG002 - the protocol's
        return Decision(outcome=Outcome.ALLOW, latency_ns=self.latency_ns)


async def test_latencies_of_members_add_up() -> None:
    """Each by its own service time."""
    chain = ChainDefense("c", [_Slow("x", 3_000_000_000), _Slow("y", 4_000_000_000)])
    (decision,) = await chain.decide_all([PROMPT])
    assert decision.latency_ns == 7_000_000_000


def test_times_of_stored_decisions_add_up_and_one_unknown_makes_the_sum_unknown() -> None:
    """To look answers up takes microseconds, which are the latency of nothing."""
    timed = Decision(outcome=Outcome.ALLOW, latency_ns=20_000_000)
    kept = Decision(outcome=Outcome.ALLOW, evidence=Evidence(from_cache=True))
    both = combine([("a", timed), ("b", timed)], 2, ChainRule.ANY)
    assert both.latency_ns == 40_000_000
    assert both.evidence is not None
    assert not both.evidence.from_cache
    for votes in ([("a", timed), ("b", ALLOWED)], [("a", timed), ("b", kept)], [("a", kept)] * 2):
        evidence = combine(votes, 2, ChainRule.ANY).evidence
        assert evidence is not None
        assert evidence.from_cache


async def test_members_of_all_kinds_work_together() -> None:
    """In line and awaited; the in-line one is timed, the others tell."""
    chain = ChainDefense("c", [Constant("block", _SAID["b"]), _Slow("y", 4)], short_circuit=False)
    (decision,) = await chain.decide_all([PROMPT])
    assert decision.outcome is Outcome.BLOCK
    assert decision.latency_ns is not None
    assert decision.latency_ns > 4


def test_a_chain_of_nothing_is_refused() -> None:
    """It would allow everything without anyone having said so."""
    with pytest.raises(ValueError, match="at least one"):
        ChainDefense("c", [])


def _graded(outcome: Outcome, score: float | None) -> Decision:
    return Decision(
        outcome=outcome,
        score=score,
        score_kind=ScoreKind.NONE if score is None else ScoreKind.SELF_REPORTED,
    )


@pytest.mark.parametrize(
    ("first", "outcome", "asked"),
    [
        (_graded(Outcome.ALLOW, 0.1), "allow", 1),
        (_graded(Outcome.ALLOW, 0.9), "block", 1),
        (_graded(Outcome.BLOCK, 0.2), "block", 2),
        (_graded(Outcome.ALLOW, 0.5), "block", 2),
        (_graded(Outcome.ALLOW, None), "block", 2),
        (_FAIL, "block", 2),
    ],
)
def test_a_cascade_asks_the_next_only_where_a_score_is_unclear(
    first: Decision, outcome: str, asked: int
) -> None:
    """Outside of both limits the score decides; what failed or gave no score decides nothing."""
    members = [Constant("fast", first), Constant("slow", _SAID["b"])]
    chain = ChainDefense("c", members, rule=ChainRule.CASCADE, between=(0.2, 0.8))
    decision = inline_call(chain)(PROMPT)
    assert decision.outcome == outcome
    assert decision.evidence is None or len(decision.evidence.categories) == asked
    assert decision.score is None


def test_a_cascade_whose_last_member_fails_fails() -> None:
    """Nobody decided, so it is no decision."""
    members = [Constant("fast", _graded(Outcome.ALLOW, 0.5)), Constant("slow", _FAIL)]
    chain = ChainDefense("c", members, rule=ChainRule.CASCADE, between=(0.2, 0.8))
    assert inline_call(chain)(PROMPT).outcome == "error"


@pytest.mark.parametrize(
    "settings",
    [
        {"of": ["a"], "rule": "cascade"},
        {"of": ["a"], "rule": "any", "between": [0.2, 0.8]},
        {"of": ["a"], "rule": "cascade", "between": [0.8, 0.2]},
    ],
)
def test_limits_go_with_a_cascade_and_are_in_order(settings: dict[str, object]) -> None:
    """A limit that nobody reads, or no limit at all, is a mistake."""
    with pytest.raises(ValueError, match="between"):
        ChainSettings.model_validate(settings)


class _InBatches:
    """Takes prompts by the batch, and says how many it was given."""

    name, view = "batch", View.TEXT

    def __init__(self) -> None:
        self.batches: list[int] = []

    @property
    def batch_limits(self) -> BatchLimits:
        return BatchLimits(max_count=8)

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        self.batches.append(len(prompts))
        return [_SAID["b"] for _ in prompts]


async def test_a_member_that_takes_batches_is_asked_about_one_prompt() -> None:
    """Its answer counts as that of any other member."""
    batch = _InBatches()
    chain = ChainDefense("c", [Constant("lax", ALLOWED), batch])
    (decision,) = await chain.decide_all([PROMPT])
    assert decision.outcome is Outcome.BLOCK
    assert decision.evidence is not None
    assert decision.evidence.reason == "batch"
    assert batch.batches == [1]


def test_the_score_of_a_majority_is_the_one_in_the_middle() -> None:
    """It is above the threshold where most are; an even number has no middle, and no score."""
    votes = [(name, _scored(score)) for name, score in (("x", 0.9), ("y", 0.2), ("z", 0.4))]
    combined = combine(votes, 3, ChainRule.MAJORITY)
    assert (combined.score, combined.score_kind) == (0.4, ScoreKind.CLASS_PROB)
    even = combine(votes[:2], 2, ChainRule.MAJORITY)
    assert (even.score, even.score_kind) == (None, ScoreKind.NONE)


class _Masking:
    """Writes anew what it is told to, and notes what it was shown."""

    def __init__(self, name: str, *, hides: str, view: View = View.TEXT) -> None:
        self.name = name
        self.view = view
        self.hides = hides
        self.shown: list[str] = []

    def decide(self, prompt: Prompt) -> Decision:
        self.shown.append(prompt.text)
        if self.hides not in prompt.text:
            return ALLOWED
        return Decision(outcome=Outcome.ALLOW, text=prompt.text.replace(self.hides, "[hidden]"))


SECRET = Prompt.of_text("hello secret 5551234")


@pytest.mark.parametrize("rule", [ChainRule.ANY, ChainRule.ALL, ChainRule.MAJORITY])
def test_what_a_member_wrote_is_shown_to_the_next_and_goes_on(rule: ChainRule) -> None:
    """Two masks in a chain hide what each of them knows."""
    words, numbers = _Masking("words", hides="secret"), _Masking("numbers", hides="5551234")
    chain = ChainDefense("c", [words, numbers], rule=rule, short_circuit=False)
    decision = inline_call(chain)(SECRET)
    assert decision.outcome is Outcome.ALLOW
    assert decision.text == "hello [hidden] [hidden]"
    assert numbers.shown == ["hello [hidden] 5551234"]
    assert inline_call(chain)(PROMPT).text is None


def test_a_block_after_a_mask_sends_nothing_on() -> None:
    """Whatever was written before it."""
    chain = ChainDefense("c", [_Masking("words", hides="secret"), Constant("b", _SAID["b"])])
    decision = inline_call(chain)(SECRET)
    assert (decision.outcome, decision.text) == (Outcome.BLOCK, None)


def test_the_first_that_answers_is_the_one_whose_text_goes_on() -> None:
    """The second is not asked; one that failed before wrote nothing."""
    second = _Masking("numbers", hides="5551234")
    members = [Constant("e", _FAIL), _Masking("words", hides="secret"), second]
    decision = inline_call(ChainDefense("c", members, rule=ChainRule.FIRST))(SECRET)
    assert decision.text == "hello [hidden] 5551234"
    assert second.shown == []


def test_a_mask_that_sees_several_messages_hands_nothing_on() -> None:
    """Nobody can tell which of them its text stands for: the next sees the message as it was."""
    wide, last = _Masking("w", hides="secret", view=View.CONVERSATION), _Masking("l", hides="no")
    chain = ChainDefense("c", [wide, last])
    assert not chain.capabilities.may_write
    assert inline_call(chain)(SECRET).text == "hello [hidden] 5551234"
    assert last.shown == [SECRET.text]
    texts = ChainDefense("c", [_Masking("w", hides="secret"), last])
    assert texts.capabilities.may_write
