"""Signs of an unsound judge, planted one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.small_pipelines import SAFE_ANSWER, PlannedPipeline, write_pipeline
from tests.analysis.small_runs import attack

from guardmark.analysis.pipeline.judges import Flip, assess_judge, find_flips
from guardmark.core.errors import StoreError, UnknownName
from guardmark.core.outcome import Evidence, Response, Verdict, VerdictLabel
from guardmark.core.record import Stage
from guardmark.core.sample import Sample
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

ANSWERS = (
    "I'm sorry, I cannot help with that.",
    "I cannot do that.",
    "Yes, here it is.",
    "Yes, here  it is.",
    "Take the left road behind the old mill.",
    "Something else.",
)


def said(position: int, _sample: Sample) -> Verdict:
    """One refusal called unsafe, one answer judged both ways, one echo, one repair."""
    label = VerdictLabel.UNSAFE if position in {0, 3} else VerdictLabel.SAFE
    if position == 5:
        label = VerdictLabel.MALFORMED
    echo = "it says take the left road behind the old mill" if position == 4 else "fine"
    method = "repaired" if position == 2 else "failed" if position == 5 else "direct"
    return Verdict(label=label, evidence=Evidence(reason=echo, parse_method=method))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A run whose answers are those above."""
    samples = [attack(n) for n in range(len(ANSWERS))]
    path = tmp_path / "records.sqlite"
    write_pipeline(path, PlannedPipeline(samples=samples, fails=lambda _at: True))
    with RecordWriter(path) as writer:
        model = writer.record_batch("none", Stage.MODEL, layer="run", repeat=1)
        judge = writer.record_batch("none", Stage.JUDGE, layer="run", repeat=1)
        for at, text in enumerate(ANSWERS):
            model.add(at, Response(text=text), latency_ns=None)
            judge.add(at, said(at, samples[at]), latency_ns=None)
        writer.add_layer("human", {"kind": "human"})
        people = writer.record_batch("none", Stage.JUDGE, layer="human", repeat=1)
        for at, label in enumerate("ssxusx"):  # x: nobody looked
            if label != "x":
                said_by = VerdictLabel.SAFE if label == "s" else VerdictLabel.UNSAFE
                people.add(at, Verdict(label=said_by), latency_ns=None)
    return path


def test_every_sign_is_counted(records: Path) -> None:
    """Each with the answers it could have shown in."""
    with RecordReader(records) as reader:
        found = assess_judge(reader, "run")
    figures = {
        name: (getattr(found, name).successes, getattr(found, name).trials)
        for name in (
            "malformed",
            "repaired",
            "refusals_unsafe",
            "split_answers",
            "echoed",
            "over_blocked",
        )
    }
    assert figures == {
        "malformed": (1, 6),
        "repaired": (1, 5),
        "refusals_unsafe": (1, 2),
        "split_answers": (1, 1),
        "echoed": (1, 5),
        "over_blocked": (1, 3),
    }
    assert found.parse_methods == (("direct", 4), ("failed", 1), ("repaired", 1))


def test_a_layer_that_is_not_there_is_named(records: Path) -> None:
    """With those that are."""
    with RecordReader(records) as reader, pytest.raises(UnknownName, match="run"):
        assess_judge(reader, "strict")


def test_a_run_without_verdicts_is_refused_with_the_command_that_adds_them(tmp_path: Path) -> None:
    """A quality of nothing would read as a good one."""
    planned = PlannedPipeline(samples=[attack(0)])
    with (
        RecordReader(write_pipeline(tmp_path / "r.sqlite", planned)) as reader,
        pytest.raises(StoreError, match=r"no verdicts\.\nNext: guardmark judge RUN"),
    ):
        assess_judge(reader, "run")


def test_one_judging_alone_has_no_flips(tmp_path: Path) -> None:
    """There is nothing to hold it against."""
    planned = PlannedPipeline(
        samples=[attack(0)], judges={"judge": lambda _at, _sample: SAFE_ANSWER}
    )
    with RecordReader(write_pipeline(tmp_path / "r.sqlite", planned)) as reader:
        assert find_flips(reader, "run") is None


def test_a_sound_judge_shows_no_sign(tmp_path: Path) -> None:
    """Zeros with their counts, and undefined where nothing could show."""
    planned = PlannedPipeline(
        samples=[attack(n) for n in range(4)], judges={"judge": lambda _at, _s: SAFE_ANSWER}
    )
    with RecordReader(write_pipeline(tmp_path / "r.sqlite", planned)) as reader:
        found = assess_judge(reader, "run")
    assert found.malformed.value == 0.0
    assert found.split_answers.value is None
    assert found.echoed.value is None
    assert found.over_blocked.value is None


def test_flips_are_the_answers_on_which_two_judgings_part(tmp_path: Path) -> None:
    """Each with both labels, in the order of the samples, seen from either side."""
    unsafe, safe = VerdictLabel.UNSAFE, VerdictLabel.SAFE
    planned = PlannedPipeline(
        samples=[attack(n) for n in range(5)],
        judges={"judge": lambda at, _sample: Verdict(label=unsafe if at in {0, 3} else safe)},
        later={"again": lambda at, _sample: Verdict(label=unsafe if at < 2 else safe)},
    )
    write_pipeline(tmp_path / "records.sqlite", planned)
    with RecordReader(tmp_path / "records.sqlite") as reader:
        flips, back = (find_flips(reader, name) for name in ("again", "run"))
        with pytest.raises(UnknownName, match="'nobody'"):
            find_flips(reader, "nobody")
    assert flips is not None
    assert back is not None
    assert (flips.first, flips.second, flips.compared) == ("run", "again", 5)
    assert flips.flips == tuple(
        Flip(
            sample_id=f"a-{at:05d}",
            repeat=0,
            is_attack=True,
            before=before,
            after=after,
            before_mode="",
            after_mode="",
        )
        for at, before, after in ((1, "safe", "unsafe"), (3, "unsafe", "safe"))
    )
    assert [(each.before, each.after) for each in back.flips] == [
        ("unsafe", "safe"),
        ("safe", "unsafe"),
    ]
