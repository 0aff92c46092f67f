"""An adaptive attacker, measured against defenses whose weakness is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.adaptive.planted import (
    MANIFEST,
    AtOnce,
    Later,
    anchored,
    attack,
    cards,
    folding,
    hardened,
    keyword,
    leaker,
    odd_characters,
    samples,
    trace,
)
from tests.engine.parts import Limits

from guardmark.adaptive.asker import stored_tries
from guardmark.adaptive.campaign import AdaptivePlan, check_settings
from guardmark.analysis.adaptive.card import AdaptiveCard
from guardmark.analysis.adaptive.operators import OperatorClass
from guardmark.analysis.adaptive.rows import read_adaptive
from guardmark.app.results.try_trace import read_trace
from guardmark.config import deadline
from guardmark.core.errors import IncomparableRuns, UntrustworthyRun
from guardmark.core.outcome import BLOCKED, Decision, ErrorKind, Outcome
from guardmark.core.sample import Prompt, View
from guardmark.engine.supervision import StopSignal
from guardmark.reports.chapters.adaptive.attack_success import holding_sentence
from guardmark.reports.render.json.documents import adaptive_json
from guardmark.store.integrity import check
from guardmark.store.layers import ADAPTIVE, NULL
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.tries import read_tries

Rule = Callable[[str], bool]


def plan_of(*defenses: Any, budget: int = 16, concurrency: int = 16, **more: Any) -> AdaptivePlan:
    """Plan an attack with the seed of these tests."""
    return AdaptivePlan(defenses=defenses, seed=7, budget=budget, concurrency=concurrency, **more)


async def card_of(folder: Path, rule: Rule, *, budget: int = 16) -> AdaptiveCard:
    """Attack one defense and read its figures."""
    await attack(folder, samples(), plan_of(AtOnce("planted", rule), budget=budget))
    (card,) = cards(folder)
    return card


async def test_a_stored_run_holds_every_arm_under_its_name(tmp_path: Path) -> None:
    """Who reads it years later finds the tries, the findings and who was left out by these."""
    plan = plan_of(AtOnce("d", hardened), left_out={"output": "response"})
    await attack(tmp_path, samples(6, 4), plan)
    with RecordReader(tmp_path / "records.sqlite") as reader:
        held = {layer: any(read_tries(reader, layer=layer)) for layer in reader.layers()}
    assert held == {
        "run": False,
        "adaptive": True,
        "adaptive/blind": True,
        "adaptive/null": True,
        "adaptive/findings/d": False,
        "adaptive/left-out": False,
    }


@pytest.mark.parametrize(
    ("rule", "label"),
    [(keyword, "keyword"), (anchored, "pattern"), (folding, "keyword")],
)
async def test_a_planted_defense_is_diagnosed_and_falls(
    tmp_path: Path, rule: Rule, label: str
) -> None:
    """At least 80 % of the probed attacks name the planted kind, and success rises."""
    card = await card_of(tmp_path, rule)
    labels = card.findings["labels"]
    assert card.findings["diagnosis"] == label
    assert labels[label] >= 0.8 * card.findings["examined"]
    assert card.flags == ()
    assert card.rounds[0].full.value == 0
    assert card.rounds[-1].full.value > 0.9


async def test_a_statistical_defense_is_diagnosed_as_such(tmp_path: Path) -> None:
    """The built-in n-gram model is named lexical-statistical, and falls further."""
    from guardmark.app.parts.building import build_defenses
    from guardmark.app.parts.loading import builtin_config

    (built,) = build_defenses(builtin_config(), None, only=("ngram",))
    await attack(tmp_path, samples(), plan_of(built.part))
    (card,) = cards(tmp_path)
    if card.findings["examined"]:
        assert card.findings["diagnosis"] == "lexical-statistical"
    assert card.findings["has_scores"]
    assert card.rounds[-1].full.value >= card.rounds[0].full.value


@pytest.mark.slow
async def test_folding_is_noticed_and_closes_hidden_characters(tmp_path: Path) -> None:
    """A defense that canonicalises first holds against invisible characters."""
    card = await card_of(tmp_path, folding)
    assert card.findings["folds"]
    hidden = [
        each
        for each in card.operators
        if each.chain.startswith(("invisible@", "fullwidth@")) and " + " not in each.chain
    ]
    assert hidden
    assert all(each.standing is OperatorClass.HOLDS for each in hidden)


async def test_a_blocker_of_odd_characters_is_a_blanket_block(tmp_path: Path) -> None:
    """Its form is named, and plain attacks all pass."""
    card = await card_of(tmp_path, odd_characters)
    assert card.findings["diagnosis"] == "format"
    assert card.rounds[0].full.value == 1
    blanket = {e.chain.split("@")[0] for e in card.operators if e.standing is OperatorClass.BLANKET}
    assert {"invisible", "fullwidth"} <= blanket


@pytest.mark.slow
async def test_the_gain_over_a_random_defense_is_explained_by_the_null_arm(tmp_path: Path) -> None:
    """A leaker is flagged; sending the same text again does as well as any attack."""
    card = await card_of(tmp_path, leaker(), budget=64)
    assert card.flags == ("RANDOMISED",)
    assert card.findings["diagnosis"] == "none"
    by_arm = {each.arm: each.at_budget for each in card.arms}
    assert by_arm["null"].value > card.rounds[0].full.value
    assert by_arm["adaptive"].low <= by_arm["null"].high
    assert by_arm["null"].low <= by_arm["adaptive"].high


async def test_a_defense_that_blocks_everything_is_said_to_be_unbroken_with_a_bound(
    tmp_path: Path,
) -> None:
    """Nothing gets through; the bound is printed, and every operator is a blanket block."""
    card = await card_of(tmp_path, lambda _: True)
    assert card.rounds[-1].full.successes == 0
    twinned = [each for each in card.operators if each.benign_blocked.trials]
    assert {each.standing for each in twinned} == {OperatorClass.BLANKET}
    sentence = holding_sentence(card)
    assert "not broken under guardmark-attack-3, budget 16" in sentence
    assert "up to" in sentence
    assert "robust" not in sentence


async def test_a_defense_that_blocks_nothing_is_passed_from_the_start(tmp_path: Path) -> None:
    """Every attack passes as it is, so there is nothing to search for."""
    card = await card_of(tmp_path, lambda _: False)
    assert card.findings["diagnosis"] == "none"
    assert card.rounds[0].full.value == 1
    assert card.survival is None


@pytest.mark.slow
async def test_success_never_falls_and_the_curve_ends_where_the_rate_is(tmp_path: Path) -> None:
    """Rounds are cumulative; one minus Kaplan-Meier equals the rate of the adaptive arm."""
    card = await card_of(tmp_path, hardened)
    shares = [each.full.value for each in card.rounds]
    assert shares == sorted(shares)
    assert all(each.strict.successes <= each.full.successes for each in card.rounds)
    if not card.survival.given_up_early:
        end = 1 - card.survival.points[-1].survival
        by_arm = {each.arm: each.at_budget for each in card.arms}
        assert end == pytest.approx(by_arm["adaptive"].value)


@pytest.mark.slow
async def test_the_null_arm_gains_nothing_from_a_steady_defense(tmp_path: Path) -> None:
    """The same text gets the same answer, however often it is sent."""
    card = await card_of(tmp_path, folding)
    assert card.null_gain.value == 0
    assert card.calls[NULL, "search"] == 60 * 16


async def test_a_search_stays_within_its_budget(tmp_path: Path) -> None:
    """No attack gets more search tries than it is worth."""
    await card_of(tmp_path, lambda _: True)
    with RecordReader(tmp_path / "records.sqlite") as reader:
        (records,) = read_adaptive(reader)
    assert max(len(s.tries) for s in records.arms[ADAPTIVE].values()) <= 16


@pytest.mark.slow
@pytest.mark.parametrize("rule", [keyword, hardened])
async def test_any_concurrency_gives_the_same_bytes(tmp_path: Path, rule: Rule) -> None:
    """Concurrency 1, 8 and 64 write the same trace."""
    written = set()
    for concurrency in (1, 8, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        defenses = (Later("one", rule), Later("two", folding))
        plan = plan_of(*defenses, concurrency=concurrency)
        await attack(folder, samples(16, 8), plan)
        written.add(trace(folder, "one", "two"))
    assert len(written) == 1


@pytest.mark.slow
async def test_a_trace_is_replayed_without_a_call(tmp_path: Path) -> None:
    """The figures come back from the trace and the seeds; the defense is not asked."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    data = samples(16, 8)
    await attack(first, data, plan_of(AtOnce("d", keyword)))
    text = trace(first, "d")
    (tmp_path / "trace.jsonl").write_text(text, encoding="utf-8")
    silent = Later("d", keyword)
    positions = {sample.id: place for place, sample in enumerate(data)}
    plan = plan_of(silent)
    answers = read_trace(tmp_path / "trace.jsonl", settings=plan.settings, positions=positions)
    await attack(second, data, plan_of(silent, trace=answers))
    assert silent.calls == 0
    assert trace(second, "d") == text
    # All but seconds, which a replay has none of.
    assert adaptive_json(cards(second)) == adaptive_json(cards(first))


@pytest.mark.slow
async def test_an_interrupted_measurement_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What is stored is not asked again, and the trace is that of one go."""

    class Stopping(AtOnce):
        def decide(self, prompt: Prompt) -> Decision:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 1000:
                stop.set("SIGINT")
            return super().decide(prompt)

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    data = samples(16, 8)
    await attack(whole, data, plan_of(AtOnce("d", hardened)))
    stop = StopSignal()
    first = Stopping("d", hardened)
    assert (await attack(parts, data, plan_of(first), stop=stop)).is_interrupted
    with RecordReader(parts / "records.sqlite") as reader:
        earlier = stored_tries(reader)
    second = Later("d", hardened)
    await attack(parts, data, plan_of(second), earlier=earlier)
    assert trace(parts, "d") == trace(whole, "d")
    assert check(parts / "records.sqlite") == []


class Flaky(AtOnce):
    """Fails on every fifth call, and answers when it is asked the same text again."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.count, self.failed = 0, set[str]()

    def decide(self, prompt: Prompt) -> Decision:
        """Fail, or apply the rule."""
        self.count += 1
        if self.count % 5 == 0 and prompt.text not in self.failed:
            self.failed.add(prompt.text)
            return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP)
        return super().decide(prompt)


@pytest.mark.slow
async def test_failures_never_change_what_held_and_what_fell(tmp_path: Path) -> None:
    """A failed call is asked again and counts neither as held nor as bypassed."""
    steady, flaky = tmp_path / "steady", tmp_path / "flaky"
    steady.mkdir()
    flaky.mkdir()
    await attack(steady, samples(), plan_of(AtOnce("d", hardened)))
    await attack(flaky, samples(), plan_of(Flaky("d", hardened)))
    (one,), (two,) = cards(steady), cards(flaky)
    assert two.unanswered > 0
    assert two.rounds == one.rounds
    assert two.arms == one.arms
    assert two.flags == one.flags


async def test_a_defense_that_never_answers_is_missing_and_not_holding(tmp_path: Path) -> None:
    """Its attacks count for nothing, and nothing is claimed."""

    class Down:
        name, view = "down", View.TEXT

        async def decide(self, prompt: Prompt) -> Decision:
            raise TimeoutError(f"no answer to {len(prompt.text)} characters")

    await attack(tmp_path, samples(6, 4), plan_of(Down()))
    (card,) = cards(tmp_path)
    assert card.attacks == 0
    assert card.missing == 6
    assert "undefined" in holding_sentence(card)


async def test_a_text_that_breaks_its_batch_takes_no_neighbour_with_it(tmp_path: Path) -> None:
    """It alone is without an answer; the others are asked about one by one."""

    class Brittle:
        name, view, batch_limits = "brittle", View.TEXT, Limits()

        async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
            if any(prompt.text.endswith("number 0.") for prompt in prompts):
                raise ValueError("no such token")
            return [BLOCKED for _ in prompts]

    await attack(tmp_path, samples(6, 4), plan_of(Brittle()))
    (card,) = cards(tmp_path)
    assert (card.missing, card.attacks) == (1, 5)


@pytest.mark.parametrize("kind", ["one by one", "in batches"])
async def test_what_a_defense_cannot_be_shown_is_not_sent(tmp_path: Path, kind: str) -> None:
    """As in a run: such a sample is without an answer, and no call is spent on it."""
    seen: list[Prompt] = []

    class OneByOne:
        name, view = "documents", View.DOCUMENT

        async def decide(self, prompt: Prompt) -> Decision:
            seen.append(prompt)
            return BLOCKED

    class InBatches:
        name, view, batch_limits = "documents", View.DOCUMENT, Limits()

        async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
            seen.extend(prompts)
            return [BLOCKED for _ in prompts]

    defense = OneByOne() if kind == "one by one" else InBatches()
    await attack(tmp_path, samples(3, 2), plan_of(defense))
    (card,) = cards(tmp_path)
    assert not seen
    assert (card.missing, card.attacks) == (3, 0)


async def test_other_settings_are_not_mixed(tmp_path: Path) -> None:
    """Another budget on the same records is refused before anything is called."""
    await attack(tmp_path, samples(6, 4), plan_of(AtOnce("d", keyword)))
    with RecordReader(tmp_path / "records.sqlite") as reader:
        check_settings(plan_of(AtOnce("d", keyword)), reader)
        with pytest.raises(IncomparableRuns, match="budget"):
            check_settings(plan_of(AtOnce("d", keyword), budget=64), reader)


@pytest.mark.slow
async def test_winners_are_replayed_on_the_other_defenses(tmp_path: Path) -> None:
    """What got through a keyword list is asked of the folding one, once each."""
    await attack(tmp_path, samples(), plan_of(AtOnce("plain", keyword), AtOnce("folds", folding)))
    plain, folds = cards(tmp_path)
    assert [each.source for each in folds.transfers] == ["plain"]
    assert folds.transfers[0].passed.trials == 60
    assert folds.transfers[0].passed.value < 1
    assert plain.transfers[0].passed.value > folds.transfers[0].passed.value


@pytest.mark.slow
async def test_repair_names_the_cleaning_that_would_have_helped(tmp_path: Path) -> None:
    """Bypasses by hidden characters close once these are removed; benign texts are not hurt."""
    card = await card_of(tmp_path, keyword)
    assert card.repaired is not None
    assert card.repaired.known.value > 0.2
    assert card.repaired.cost.value == 0


@pytest.mark.slow
async def test_learning_beats_drawing_at_random_where_few_operators_work(tmp_path: Path) -> None:
    """Against a defense that only few operators pass, the gain at equal tries is certain."""
    card = await card_of(tmp_path, hardened, budget=64)
    gains = dict(card.gains)
    assert gains[16].low > 0


def test_the_manifest_of_the_tests_is_whole(tmp_path: Path) -> None:
    """The planted runs carry a manifest, as every run does."""
    with RecordWriter(tmp_path / "records.sqlite") as writer:
        writer.put_manifest(MANIFEST)
        assert writer.manifest == MANIFEST


async def test_a_search_that_took_all_of_its_time_is_not_made_again(tmp_path: Path) -> None:
    """Nor is what failed for another reason taken for it: that is asked three times."""
    data = samples(2, 2)
    endless, crashing = (sample.prompt.text for sample in data[:2])
    asked: list[str] = []

    def rule(text: str) -> bool:
        asked.append(text)
        while text == endless:
            pass
        if text == crashing:
            raise RuntimeError("no")
        return True

    part = AtOnce("hasty", rule, timeout_s=0.05)
    await attack(tmp_path, data, plan_of(part, budget=1))
    baseline = asked[: asked.index(crashing) + 4]
    assert baseline.count(endless) == 1
    assert asked.count(crashing) >= 3


async def test_a_part_whose_searches_never_end_ends_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of waiting would say nothing more; what was answered is there."""
    monkeypatch.setattr(deadline, "LOST_S", 0.1)

    def rule(_text: str) -> bool:
        while True:
            pass

    part = AtOnce("endless", rule, timeout_s=0.05)
    with pytest.raises(UntrustworthyRun, match="endless is asked no more"):
        await attack(tmp_path, samples(), plan_of(part))
    with RecordReader(tmp_path / "records.sqlite") as reader:
        tries = list(read_tries(reader))
    assert {each.error_kind for each in tries} == {ErrorKind.TIMEOUT}
    assert 1 < len(tries) < 6
    assert check(tmp_path / "records.sqlite") == []
