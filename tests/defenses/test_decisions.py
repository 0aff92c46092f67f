"""Decisions of another tool: read faithfully, every bad row named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.adaptive.planted import MANIFEST

from guardmark.core.errors import ConfigError, DatasetError, UnknownName
from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    ScoreKind,
)
from guardmark.core.sample import Label, Prompt, Sample, View
from guardmark.defenses.decisions import (
    DecisionsDefense,
    DecisionsSettings,
    read_decisions,
    read_run,
)
from guardmark.defenses.guard import as_guard
from guardmark.engine import runner
from guardmark.engine.plan import Plan
from guardmark.store.records import RecordWriter

PLAIN = DecisionsSettings(path="any")


def _read(
    folder: Path, name: str, text: str, settings: DecisionsSettings = PLAIN
) -> dict[str, Decision]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_decisions(path, settings, shown_as=name)


def _sample(sample_id: str, text: str) -> Sample:
    return Sample(id=sample_id, prompt=Prompt.of_text(text), label=Label.BENIGN)


def test_jsonl_and_csv_say_the_same(tmp_path: Path) -> None:
    """Decision, score and latency survive both."""
    one = _read(
        tmp_path,
        "d.jsonl",
        '{"id":"a","decision":"Block","score":0.9,"latency_ms":1.5}\n\n{"id":7,"decision":false}\n',
    )
    two = _read(
        tmp_path, "d.csv", "\ufeffid,decision,score,latency_ms\r\na,BLOCK,0.9,1.5\r\n7,pass,,\r\n"
    )
    assert one == two
    assert one["a"].latency_ns == 1_500_000
    assert one["7"].score is None


def test_own_names_and_words_are_mapped(tmp_path: Path) -> None:
    """`verdict: unsafe` of another tool."""
    settings = DecisionsSettings(
        path="any",
        map={"id": "case", "decision": "verdict"},
        values={"Unsafe": Outcome.BLOCK},
    )
    assert (
        _read(tmp_path, "d.jsonl", '{"case":"a","verdict":"unsafe"}', settings)["a"].outcome
        == "block"
    )


def test_a_score_decides_with_a_threshold(tmp_path: Path) -> None:
    """Only then."""
    settings = DecisionsSettings(path="any", threshold=0.4)
    found = _read(tmp_path, "d.csv", "id,score\na,0.4\nb,0.39\n", settings)
    assert [found[key].outcome for key in "ab"] == ["block", "allow"]


def test_every_bad_row_is_counted_and_the_first_named(tmp_path: Path) -> None:
    """With row and field, and nothing is run."""
    rows = [
        "not json",
        "[1]",
        '{"decision":"block"}',
        '{"id":"a","decision":"maybe"}',
        '{"id":"b","decision":"block","score":7}',
        '{"id":"c","decision":"block","latency_ms":-1}',
        '{"id":"d","decision":"block","score":true}',
        '{"id":"e"}',
        '{"id":"f","decision":"block"}',
        '{"id":"f","decision":"allow"}',
    ]
    with pytest.raises(DatasetError, match=r"(?s)d\.jsonl:1: is not JSON.*and 6 more") as raised:
        _read(tmp_path, "d.jsonl", "\n".join(rows))
    assert len(str(raised.value).splitlines()) <= 5


@pytest.mark.parametrize("row", ['{"id":"a","decision":"maybe"}', '{"id":"a"}', '{"id":""}', ""])
def test_one_bad_row_is_enough(tmp_path: Path, row: str) -> None:
    """A file without rows is bad too."""
    with pytest.raises(DatasetError):
        _read(tmp_path, "d.jsonl", row)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    """Nothing was called, so exit 2."""
    with pytest.raises(ConfigError, match="gone"):
        read_decisions(tmp_path / "gone.csv", PLAIN, shown_as="gone.csv")


def test_samples_are_found_by_id_and_unknown_ones_are_skipped() -> None:
    """An id the file does not know is an error, never an allow."""
    defense = DecisionsDefense("other", {"a": Decision(outcome=Outcome.BLOCK)})
    assert as_guard(defense).capabilities.is_inline
    assert as_guard(defense).capabilities.needs_samples
    defense.bind([_sample("a", "one"), _sample("b", "two")])
    assert defense.decide(Prompt.of_text("one")).outcome is Outcome.BLOCK
    unknown = defense.decide(Prompt.of_text("two"))
    assert (unknown.outcome, unknown.error_kind) == (Outcome.ERROR, ErrorKind.SKIPPED)


def test_equal_texts_with_different_decisions_are_errors() -> None:
    """Nobody can say which row is meant; equal decisions are fine."""
    block, allow = Decision(outcome=Outcome.BLOCK), Decision(outcome=Outcome.ALLOW)
    defense = DecisionsDefense("other", {"a": block, "b": allow, "c": block, "d": block})
    defense.bind([_sample(*pair) for pair in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))])
    assert defense.decide(Prompt.of_text("x")).error_kind is ErrorKind.SKIPPED
    assert defense.decide(Prompt.of_text("y")).outcome is Outcome.BLOCK


def test_a_decision_without_a_time_is_a_kept_one() -> None:
    """To look it up is no latency of the defense; a time in the file is one."""
    timed = Decision(outcome=Outcome.BLOCK, latency_ns=40_000_000)
    reasoned = Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason="a word"))
    defense = DecisionsDefense("other", {"a": timed, "b": reasoned})
    defense.bind([_sample("a", "one"), _sample("b", "two")])
    one, two, none = (defense.decide(Prompt.of_text(text)) for text in ("one", "two", "three"))
    assert one == timed
    assert two.evidence == Evidence(reason="a word", from_cache=True)
    assert none.evidence is not None
    assert none.evidence.from_cache


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "needs either path"),
        ({"path": "d.csv", "run": "runs/1", "defense": "words"}, "needs either path"),
        ({"run": "runs/1"}, "run goes with defense"),
        ({"path": "d.csv", "defense": "words"}, "run goes with defense"),
        ({"run": "runs/1", "defense": "words", "threshold": 0.5}, "how a file is read, not a run"),
        ({"run": "runs/1", "defense": "words", "values": {"no": "block"}}, "is read, not a run"),
    ],
)
def test_decisions_come_from_one_file_or_from_one_defense_of_a_run(
    said: dict[str, object], told: str
) -> None:
    """What would be read by nobody is refused."""
    with pytest.raises(ValidationError, match=told):
        DecisionsSettings.model_validate(said)


class _Words:
    """Blocks one word."""

    name, view = "words", View.TEXT

    def decide(self, prompt: Prompt) -> Decision:
        """Look for it; another word is hidden."""
        if "secret" in prompt.text:
            return Decision(outcome=Outcome.ALLOW, text=prompt.text.replace("secret", "[hidden]"))
        return BLOCKED if "sesame" in prompt.text else ALLOWED


async def test_decisions_of_a_run_are_found_by_the_name_of_a_defense(tmp_path: Path) -> None:
    """A name that the run does not have is told with those near it, and so is a missing run."""
    samples = [_sample("a", "open sesame"), _sample("b", "hello"), _sample("c", "a secret")]
    path = tmp_path / "records.sqlite"
    with RecordWriter(path) as writer:
        writer.put_manifest(MANIFEST)
        writer.load_samples(samples)
        await runner.run(Plan(defenses=(_Words(),)), writer)
    kept = read_run(path, "words", shown_as="runs/1")
    decided = {key: (each.outcome, each.text) for key, each in kept.items()}
    assert decided == {
        "a": ("block", None),
        "b": ("allow", None),
        "c": ("allow", "a [hidden]"),  # what went on is kept, too
    }
    with pytest.raises(UnknownName, match=r"defense of the run runs/1.*Did you mean 'words'"):
        read_run(path, "wrods", shown_as="runs/1")
    with pytest.raises(ConfigError, match=r"no run in runs/2: it holds no records\.sqlite"):
        read_run(tmp_path / "gone.sqlite", "words", shown_as="runs/2")


@pytest.mark.parametrize(
    ("meaning", "score", "kind"),
    [
        (None, 0.8, ScoreKind.CONFIDENCE),
        ("risk", 0.8, ScoreKind.SELF_REPORTED),
        ("certainty", 0.2, ScoreKind.SELF_REPORTED),
    ],
)
def test_a_confidence_is_kept_by_what_it_is_said_to_mean(
    tmp_path: Path, meaning: str | None, score: float, kind: ScoreKind
) -> None:
    """Of an allowed text; unexplained it is marked, so that a run asks where it contradicts."""
    settings = DecisionsSettings.model_validate({"path": "any", "confidence": meaning})
    decision = _read(tmp_path, "d.csv", "id,decision,confidence\na,allow,0.8\n", settings)["a"]
    assert decision.score == pytest.approx(score)
    assert decision.score_kind is kind
