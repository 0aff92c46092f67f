"""What parts of other people raise or hand over is theirs: a record, never the end of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.parts import Inline, Judging, Model, Remote, number_of

from guardmark.core.errors import BudgetReached, StorageError
from guardmark.core.manifest import LatencyMode
from guardmark.core.outcome import (
    ALLOWED,
    AnswerMode,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Record, Stage
from guardmark.core.sample import Prompt
from guardmark.core.usage import Usage
from guardmark.engine.plan import Budget, Pipeline, Plan, Timing
from guardmark.engine.runner import Ending, run
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

OpenWriter = Callable[..., RecordWriter]


class Panic(BaseException):
    """What a library written in Rust raises when it panics: no `Exception`."""


def records_of(writer: RecordWriter, name: str, stage: Stage) -> dict[int, Record]:
    """Every record of a part by its sample, out of a sound store."""
    assert check(writer.path) == []
    with RecordReader(writer.path) as reader:
        found = list(reader.records(defense=name, stage=stage))
    assert len({record.key for record in found}) == len(found)
    return {record.key.sample: record for record in found}


def raising(error: type[BaseException]) -> Callable[[Prompt], Decision]:
    """A rule that fails on every fifth sample."""

    def rule(prompt: Prompt) -> Decision:
        if number_of(prompt) % 5 == 0:
            raise error
        return ALLOWED

    return rule


@pytest.mark.parametrize("error", [Panic, asyncio.CancelledError, SystemExit, MemoryError])
@pytest.mark.parametrize("part", [Inline, Remote])
async def test_whatever_a_part_raises_is_an_error_of_it(
    open_writer: OpenWriter, part: Callable[..., Any], error: type[BaseException]
) -> None:
    """Also what is no Exception, and a cancellation that nobody asked for."""
    writer = open_writer(20)
    defense = part(rule=raising(error))
    summary = await run(Plan(defenses=(defense,)), writer)
    assert summary.ending is Ending.COMPLETE
    records = records_of(writer, defense.name, Stage.DEFENSE)
    assert [n for n, record in records.items() if record.outcome == "error"] == [0, 5, 10, 15]
    assert {r.error_kind for r in records.values() if r.outcome == "error"} == {ErrorKind.CRASH}


async def test_a_full_disk_is_no_failure_of_the_part(open_writer: OpenWriter) -> None:
    """An exchange that cannot be recorded ends the run; as an error it would be a finding."""

    def rule(_: Prompt) -> Decision:
        raise StorageError("The cassette cannot be written: the disk is full.")

    writer = open_writer(20)
    with pytest.raises(StorageError, match="disk is full"):
        await run(Plan(defenses=(Remote(rule=rule),)), writer)
    assert records_of(writer, "remote", Stage.DEFENSE) == {}


def decided(**fields: Any) -> Decision:
    """A decision whose fields nobody has looked at."""
    return Decision(**{"outcome": Outcome.ALLOW, **fields})


ODD_DECISIONS: dict[str, Decision] = {
    "outcome": decided(outcome="banana"),
    "score": decided(score="high"),
    "score kind": decided(score_kind="feeling"),
    "latency": decided(latency_ns=1.5),
    "vast latency": decided(latency_ns=1 << 70),
    "evidence": decided(evidence="because"),
    "raw": decided(evidence=Evidence(raw=len)),  # type: ignore[arg-type]
    "message": decided(evidence=Evidence(message=None)),  # type: ignore[arg-type]
    "mapping": decided(evidence=Evidence(reason={"a": 1})),  # type: ignore[arg-type]
    "cost": decided(evidence=Evidence(usage=Usage(cost=float("nan")))),
    "usage": decided(evidence=Evidence(usage=Usage(prompt_tokens="7"))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("part", [Inline, Remote])
@pytest.mark.parametrize("name", sorted(ODD_DECISIONS))
async def test_a_decision_with_a_field_of_the_wrong_type_breaks_the_contract(
    open_writer: OpenWriter, part: Callable[..., Any], name: str
) -> None:
    """It is one error with its reason; the others are stored, and the store stays sound."""
    odd, writer = ODD_DECISIONS[name], open_writer(20)
    defense = part(rule=lambda p: odd if number_of(p) == 7 else ALLOWED)
    await run(Plan(defenses=(defense,)), writer)
    records = records_of(writer, defense.name, Stage.DEFENSE)
    assert [n for n, record in records.items() if record.outcome != "allow"] == [7]
    assert (records[7].outcome, records[7].error_kind) == ("error", ErrorKind.CONTRACT)
    assert records[7].evidence is not None
    assert "decision cannot be stored" in records[7].evidence.message


@pytest.mark.parametrize("response", [Response(text=b"bytes"), Response(text="x", latency_ns=0.5)])  # type: ignore[arg-type]
async def test_a_response_with_a_field_of_the_wrong_type_is_never_judged(
    open_writer: OpenWriter, response: Response
) -> None:
    """Nor does it end the run."""
    writer, judge = open_writer(10), Judging()
    model = Model(rule=lambda p: response if number_of(p) == 3 else Response(text="fine"))
    pipeline = Pipeline(arms=(NO_GUARD,), model=model, judges=(judge,))
    await run(Plan(defenses=(), pipeline=pipeline), writer)
    records = records_of(writer, NO_GUARD, Stage.MODEL)
    assert (records[3].outcome, records[3].error_kind) == ("error", ErrorKind.CONTRACT)
    assert sorted(records_of(writer, NO_GUARD, Stage.JUDGE)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(label="dangerous"),  # type: ignore[arg-type]
        Verdict(label=VerdictLabel.SAFE, answer_mode="odd"),  # type: ignore[arg-type]
        Verdict(label=VerdictLabel.SAFE, answer_mode=AnswerMode("answered"), score="0.5"),  # type: ignore[arg-type]
    ],
)
async def test_a_verdict_with_a_field_of_the_wrong_type_is_an_error_of_the_judge(
    open_writer: OpenWriter, verdict: Verdict
) -> None:
    """And no verdict."""

    class Odd(Judging):
        async def judge(self, prompt: Prompt, response: str) -> Verdict:
            return verdict if number_of(prompt) == 3 else await super().judge(prompt, response)

    writer = open_writer(10)
    pipeline = Pipeline(arms=(NO_GUARD,), model=Model(), judges=(Odd(),))
    await run(Plan(defenses=(), pipeline=pipeline), writer)
    records = records_of(writer, NO_GUARD, Stage.JUDGE)
    assert len(records) == 10
    assert (records[3].outcome, records[3].error_kind) == ("error", ErrorKind.CONTRACT)


async def test_planned_send_times_do_not_stretch_a_budget(open_writer: OpenWriter) -> None:
    """Sixteen wait for their turn when the budget is spent; none of them asks any more."""
    writer, part = open_writer(200), Remote()
    timing = Timing(mode=LatencyMode.OPEN, rate_per_s=200, warmup=0)
    with pytest.raises(BudgetReached, match="15 of 15 calls"):
        await run(
            Plan(defenses=(part,), timing=timing, budget=Budget(calls=15), concurrency=16), writer
        )
    assert sum(part.calls.values()) == 15
