"""Whatever a service says, it is read as exactly one outcome, and never raises."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.outcome import Decision, ErrorKind, Outcome, ScoreKind
from guardmark.defenses.http.answer import AnswerRules, WordRule, read_answer
from guardmark.defenses.http.defense import HttpSettings
from guardmark.defenses.http.values import (
    JsonPath,
    ScoreScale,
    compile_path,
    is_at_least,
    is_one_of,
    is_there,
)
from guardmark.net.service import Exchange


def _path(text: str) -> JsonPath:
    return compile_path(text, where="x")


RULES = [
    AnswerRules(blocked=_path("$.flagged"), score=_path("$.score")),
    AnswerRules(blocked=_path("$..flagged"), categories=_path("$"), reason=_path("$.score")),
    AnswerRules(blocked=_path("$.flagged"), blocked_rule=is_one_of(["yes", 1, None])),
    AnswerRules(blocked=_path("$.score"), blocked_rule=is_at_least(0.5), keep_raw=True),
    AnswerRules(blocked=_path("$.*"), blocked_rule=is_there, categories=_path("$.*")),
    AnswerRules(action=_path("$.flagged"), actions={"yes": Outcome.BLOCK, "no": Outcome.ALLOW}),
    AnswerRules(score=_path("$.score"), threshold=0.5, scale=ScoreScale(lowest=10, highest=-10)),
    AnswerRules(score=_path("$[?@.score > 1].score"), threshold=0.5),
    AnswerRules(
        blocked=_path("$.flagged"),
        statuses={204: Outcome.ALLOW, 500: Outcome.ERROR},
        rejection=WordRule(path=_path("$.flagged"), codes=frozenset({"yes"})),
        incomplete=WordRule(path=_path("$..score"), fewest=2),
    ),
]

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.sampled_from(["yes", "no", "", "1", "é\u2028\x00"])
)
_DOCUMENTS = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["flagged", "score", "name", "category", "detected", ""]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
_BODIES = st.binary(max_size=60) | _DOCUMENTS.map(lambda document: json.dumps(document).encode())


@given(
    rules=st.sampled_from(RULES),
    body=_BODIES,
    status=st.sampled_from([200, 204, 400, 500, None]),
    content_type=st.sampled_from(["application/json", "text/html", ""]),
)
def test_every_answer_has_one_outcome(
    rules: AnswerRules, body: bytes, *, status: int | None, content_type: str
) -> None:
    """A decision has a meaning; whatever is none says why, and has no score."""
    failed = status is None or status >= 400
    exchange = Exchange(
        status=status,
        body=body,
        content_type=content_type,
        service_ns=5,
        error_kind=ErrorKind.HTTP if failed else None,
        message="it failed" if failed else "",
    )
    decision = read_answer(rules, exchange)
    assert decision.latency_ns == 5
    assert (decision.error_kind is not None) == (decision.outcome is Outcome.ERROR)
    if decision.outcome in {Outcome.ERROR, Outcome.MALFORMED}:
        assert decision.score is None
        assert decision.evidence is not None
        assert decision.evidence.message
    if decision.score is not None:
        assert 0.0 <= decision.score <= 1.0
    if status is None:
        assert decision.outcome is Outcome.ERROR


@given(text=st.text(max_size=20), number=st.floats() | st.integers())
def test_a_rule_never_understands_what_it_was_not_told(text: str, number: float) -> None:
    """Only the listed values, or others of their kind, mean anything."""
    listed = is_one_of(["BLOCK"], allowed=["ALLOW"])
    assert listed([text]) is ({"BLOCK": True, "ALLOW": False}.get(text))
    assert listed([number]) is None
    assert listed([]) is None
    assert listed(["BLOCK", number]) is None
    assert is_one_of([True])([1]) is None
    assert is_one_of([1])([True]) is None


def _exchange(text: str) -> Exchange:
    return Exchange(
        status=200, body=text.encode(), content_type="application/json", service_ns=1, attempts=()
    )


def test_a_key_that_stands_twice_is_malformed() -> None:
    """The last value would silently win, and read as allow."""
    decision = read_answer(RULES[0], _exchange('{"flagged": true, "flagged": false, "score": 0}'))
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert "'flagged' appears twice" in decision.evidence.message
    assert read_answer(RULES[0], _exchange('{"flagged": true, "flagged": true}')).outcome is (
        Outcome.BLOCK
    )


def test_categories_without_end_are_cut_with_a_remark() -> None:
    """Two dozen answers came to 196 MB of records."""
    rules = AnswerRules(blocked=_path("$.flagged"), categories=_path("$.c"))
    names = [f"{n} " + "x" * 10_000 for n in range(800)]
    decision = read_answer(rules, _exchange(json.dumps({"flagged": True, "c": names})))
    assert decision.outcome is Outcome.BLOCK
    assert decision.evidence is not None
    assert len(decision.evidence.categories) == 200
    assert max(len(each.name) for each in decision.evidence.categories) == 200
    assert decision.evidence.message == "of 800 categories the first 200 are kept"


@pytest.mark.parametrize(
    ("rule", "document", "said"),
    [
        (WordRule(path=_path("$.s[*]"), codes=frozenset({"SKIPPED"})), {"s": ["OK"]}, ""),
        (
            WordRule(path=_path("$.s[*]"), codes=frozenset({"SKIPPED"})),
            {"s": ["SKIPPED"]},
            "SKIPPED",
        ),
        (WordRule(path=_path("$.s[*]"), fewest=2), {"s": [0, 1]}, ""),
        (WordRule(path=_path("$.s[*]"), fewest=2), {"s": [0, None]}, "1 of 2 values"),
        (WordRule(path=_path("$.c[?@.done < @.all]")), {"c": {"x": {"done": 4, "all": 4}}}, ""),
        (
            WordRule(path=_path("$.c[?@.done < @.all]")),
            {"c": {"x": {"done": 1, "all": 4}}},
            '{"done": 1, "all": 4}',
        ),
    ],
)
def test_what_a_service_left_out_is_no_allow(rule: WordRule, document: Any, said: str) -> None:
    """By a word of it, by fewer values than belong, or by anything at a path; a block stands."""
    rules = AnswerRules(blocked=_path("$.flagged"), incomplete=rule)
    for is_flagged in (False, True):
        body = json.dumps({**document, "flagged": is_flagged}).encode()
        decision = read_answer(rules, Exchange(status=200, body=body, service_ns=1))
        if said and not is_flagged:
            assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.SKIPPED)
            assert decision.evidence is not None
            assert f"the service says {said}:" in decision.evidence.message
        else:
            assert decision.outcome is (Outcome.BLOCK if is_flagged else Outcome.ALLOW)


@pytest.mark.parametrize("is_flagged", [False, True])
@pytest.mark.parametrize("words", ["internal error", "refused"])
def test_a_block_because_something_failed_is_no_decision(words: str, *, is_flagged: bool) -> None:
    """By the words that say so, beside a block; the same words in a text that passes are none."""
    failed = WordRule(path=_path("$.content"), codes=frozenset({"internal error"}))
    rules = AnswerRules(blocked=_path("$.flagged"), failed=failed)
    decision = read_answer(rules, _exchange(json.dumps({"flagged": is_flagged, "content": words})))
    if is_flagged and words == "internal error":
        assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.CRASH)
        assert decision.evidence is not None
        assert "'internal error'" in decision.evidence.message
    else:
        assert decision.outcome is (Outcome.BLOCK if is_flagged else Outcome.ALLOW)


@pytest.mark.parametrize(
    ("rules", "document", "said"),
    [
        (
            AnswerRules(blocked=_path("$.level"), blocked_rule=is_at_least(4)),
            '{"level": 1' + "0" * 400 + "}",
            "the value at $.level is 1000",
        ),
        (RULES[1], '{"a":' * 300 + "{}" + "}" * 300, "or 100 levels"),
        (RULES[1], '{"a":[' + "1," * 20_000 + "1]}", "more than 20,000 values"),
    ],
)
def test_an_answer_beyond_what_can_be_counted_or_walked_is_malformed(
    rules: AnswerRules, document: str, said: str
) -> None:
    """A number that no float holds, and objects within objects: never an exception of a run."""
    decision = read_answer(rules, _exchange(document))
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert said in decision.evidence.message


def test_of_very_many_categories_the_first_are_read_and_soon() -> None:
    """Lists within lists, with a name each: one pass over them, not one for each level."""
    names = ", ".join(f'"{number}"' for number in range(60_000))
    body = '{"flagged": true, "c": ' + "[" * 900 + names + "]" * 900 + "}"
    rules = AnswerRules(blocked=_path("$.flagged"), categories=_path("$.c"))
    began = process_time()
    decision = read_answer(rules, _exchange(body))
    assert process_time() - began < 1
    assert decision.evidence is not None
    assert [each.name for each in decision.evidence.categories[:2]] == ["0", "1"]
    assert "of 2,000 categories the first 200 are kept" in decision.evidence.message


@pytest.mark.parametrize(
    ("words", "kept", "outcome"),
    [
        (["NONE", "ANONYMIZED"], "ANONYMIZED", Outcome.ALLOW),
        (["NONE", "PASSED"], "NONE", Outcome.ALLOW),
        (["ANONYMIZED", "BLOCKED"], "BLOCKED", Outcome.BLOCK),
    ],
)
def test_of_several_words_the_one_that_tells_most_is_kept(
    words: list[str], kept: str, outcome: Outcome
) -> None:
    """That a text was changed is said later; a block goes before it."""
    allowed = dict.fromkeys(("NONE", "PASSED", "ANONYMIZED"), Outcome.ALLOW)
    rules = AnswerRules(action=_path("$.a[*]"), actions={**allowed, "BLOCKED": Outcome.BLOCK})
    decision = read_answer(rules, _exchange(json.dumps({"a": words})))
    assert decision.outcome is outcome
    assert decision.evidence is not None
    assert decision.evidence.native_action == kept


BY_CATEGORY = AnswerRules(
    categories=_path("$.scores"), thresholds={"violence": 0.5, "fraud": 0.8}, score=_path("$.top")
)


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        ({"violence": 0.5, "fraud": 0.1, "spam": 0.0}, Outcome.BLOCK),
        ({"violence": 0.4, "fraud": 0.8}, Outcome.BLOCK),
        ({"violence": 0.4, "fraud": 0.7, "spam": 1.0}, Outcome.ALLOW),
        ([{"name": "violence", "score": 0.4}, {"name": "fraud", "score": 0.9}], Outcome.BLOCK),
    ],
)
def test_each_category_is_held_to_its_own_threshold(scores: object, outcome: Outcome) -> None:
    """One answer decides on all; categories without a threshold decide nothing."""
    decision = read_answer(BY_CATEGORY, _exchange(json.dumps({"scores": scores, "top": 0.3})))
    assert decision.outcome is outcome
    assert decision.score == 0.3
    assert decision.evidence is not None
    flagged = {each.name: each.flagged for each in decision.evidence.categories}
    assert (flagged["violence"] or flagged["fraud"]) == (outcome is Outcome.BLOCK)
    assert flagged.get("spam") is None


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"violence": 0.1}, "it scores no category 'fraud' (thresholds); it has: violence"),
        ({"violence": 0.9}, "it scores no category 'fraud' (thresholds); it has: violence"),
        ({}, "it scores no category 'violence' (thresholds); it has: none"),
        ({"violence": 0.1, "fraud": 7}, "the category 'fraud' has no score on the scale 0 to 1"),
        ({"violence": True, "fraud": 0}, "the category 'violence' has no score on the scale"),
        (["violence"], "the category 'violence' has no score on the scale 0 to 1"),
    ],
)
def test_an_answer_that_lacks_a_score_decides_nothing(scores: object, said: str) -> None:
    """Neither as allow nor, where another category reaches its threshold, as block."""
    decision = read_answer(BY_CATEGORY, _exchange(json.dumps({"scores": scores})))
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert said in decision.evidence.message


def test_scores_of_categories_are_on_the_scale_of_the_service() -> None:
    """Severities of 0 to 7 and words, read as the overall score is."""
    rules = AnswerRules(
        categories=_path("$.c"),
        thresholds={"hate": 0.5, "harm": 0.5},
        scale=ScoreScale(lowest=0, highest=7, labels={"HIGH": 0.9}),
    )
    severity = [{"category": "hate", "severity": 4}, {"category": "harm", "severity": 2}]
    decision = read_answer(rules, _exchange(json.dumps({"c": severity})))
    assert decision.outcome is Outcome.BLOCK
    assert decision.evidence is not None
    assert [each.score for each in decision.evidence.categories] == [4 / 7, 2 / 7]
    worded = read_answer(rules, _exchange(json.dumps({"c": {"hate": "HIGH", "harm": 0}})))
    assert worded.outcome is Outcome.BLOCK


def test_the_highest_of_several_scores_flags_the_categories_behind_it() -> None:
    """With one threshold for all, each is flagged from there on; the service's own flags yield."""
    rules = AnswerRules(
        score=_path("$.scores.*"),
        threshold=0.5,
        categories=_path("$['flags', 'scores']"),
    )
    answer = {"flags": {"a": False, "b": True}, "scores": {"a": 0.6, "b": 0.4}}
    decision = read_answer(rules, _exchange(json.dumps(answer)))
    assert decision.evidence is not None
    assert {each.name: each.flagged for each in decision.evidence.categories} == {
        "a": True,
        "b": False,
    }


def _confident(*, settings: dict[str, Any], allowed: bool, confidence: object) -> Decision:
    """Read one answer by the rules that settings make."""
    stated = {"url": "http://127.0.0.1:9/", "body": {"text": {"$input": "text"}}, **settings}
    rules = HttpSettings.model_validate(stated).answer_rules("defenses.d")
    body = {"result": {"blocked": not allowed, "confidence": confidence}}
    return read_answer(rules, Exchange(status=200, body=json.dumps(body).encode(), service_ns=1))


BESIDE = {"blocked": "$.result.blocked"}
NAMED = {**BESIDE, "score": "$.result.confidence"}


@pytest.mark.parametrize("where", [BESIDE, NAMED])
@pytest.mark.parametrize(
    ("meaning", "score", "kind"),
    [
        (None, 0.8, ScoreKind.CONFIDENCE),
        ("risk", 0.8, ScoreKind.SELF_REPORTED),
        ("certainty", 0.2, ScoreKind.SELF_REPORTED),
    ],
)
def test_a_confidence_beside_the_decision_is_never_dropped(
    where: dict[str, Any], meaning: str | None, score: float, kind: ScoreKind
) -> None:
    """Named as the score or not; what it means is asked for only where it contradicts."""
    settings = {**where, **({"confidence": meaning} if meaning else {})}
    decision = _confident(settings=settings, allowed=True, confidence=0.8)
    assert decision.score == pytest.approx(score)
    assert decision.score_kind is kind


def test_a_confidence_that_is_no_share_is_kept_as_a_remark() -> None:
    """87 of 100, or a word: no score, and not dropped without a word."""
    decision = _confident(settings=BESIDE, allowed=True, confidence=87)
    assert decision.outcome is Outcome.ALLOW
    assert decision.score is None
    assert decision.evidence is not None
    assert "the confidence at $.result.confidence is 87" in decision.evidence.message


REWRITES = AnswerRules(
    action=_path("$.status"),
    actions={"passed": Outcome.ALLOW, "MASKED": Outcome.ALLOW, "blocked": Outcome.BLOCK},
    rewriting=frozenset({"MASKED"}),
    rewritten=_path("$.text"),
)


@pytest.mark.parametrize(
    ("answer", "outcome", "text"),
    [
        ({"status": "MASKED", "text": "call <NAME>"}, Outcome.ALLOW, "call <NAME>"),
        ({"status": "MASKED", "text": ""}, Outcome.ALLOW, ""),
        ({"status": "passed", "text": "as it was"}, Outcome.ALLOW, None),
        ({"status": "blocked", "text": "Sorry."}, Outcome.BLOCK, None),
        ({"status": "MASKED"}, Outcome.MALFORMED, None),
        ({"status": "MASKED", "text": 7}, Outcome.MALFORMED, None),
    ],
)
def test_a_word_that_means_rewrite_brings_the_text_that_goes_on(
    answer: dict[str, object], outcome: Outcome, text: str | None
) -> None:
    """Without that text nobody knows what went on; an empty one is a text."""
    exchange = Exchange(
        status=200, body=json.dumps(answer).encode(), content_type="application/json", service_ns=5
    )
    decision = read_answer(REWRITES, exchange)
    assert (decision.outcome, decision.text) == (outcome, text)


def test_without_words_any_text_at_the_path_goes_on() -> None:
    """A service that always says what goes on needs no word for it."""
    rules = AnswerRules(blocked=_path("$.flagged"), rewritten=_path("$.text"))
    exchange = Exchange(
        status=200,
        body=b'{"flagged": false, "text": "other"}',
        content_type="application/json",
        service_ns=5,
    )
    assert read_answer(rules, exchange).text == "other"
