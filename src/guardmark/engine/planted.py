"""A judge asked about planted answers; what it says of them is stored as a layer's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.errors import BudgetReached
from guardmark.core.record import AskingAbout
from guardmark.engine.calls import admit_call, as_verdict, attempt, settle_call
from guardmark.engine.plan import Spending
from guardmark.engine.run_monitor import supervise
from guardmark.judges.planted import PLANTED_VERSION, planted_answers
from guardmark.store.layers import PLANTED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.core.outcome import Verdict
    from guardmark.core.protocols import Judge
    from guardmark.engine.plan import Plan
    from guardmark.engine.run_monitor import StopSignal
    from guardmark.judges.planted import PlantedAnswer
    from guardmark.store.records import RecordWriter


async def ask_about_planted(
    plan: Plan, writer: RecordWriter, *, judge: Judge, stop: StopSignal
) -> str | None:
    """Ask a judge about every planted answer and store its verdicts; return their layer.

    Nothing is stored of a judge that was not asked about all of them: None if that was stopped.

    Raises:
        BudgetReached: If the next call could pass a limit.
    """
    answers = list(planted_answers())
    verdicts: dict[int, Verdict] = {}
    feed = iter(enumerate(answers))
    reached: list[BudgetReached] = []
    spending = plan.spending or Spending()

    async def ask_each(feed: Iterator[tuple[int, PlantedAnswer]]) -> None:
        for at, answer in feed:
            if stop.is_set or reached:
                return
            try:
                verdicts[at] = await _ask(spending, judge, answer)
            except BudgetReached as error:
                reached.append(error)

    workers = (ask_each(feed) for _ in range(plan.in_flight(judge.name)))
    await supervise(workers, lambda _lag_ns: not stop.is_set)
    if reached:
        raise reached[0]
    if len(verdicts) < len(answers):
        return None
    number = 1 + sum(layer.startswith(PLANTED_PREFIX) for layer in writer.layers())
    layer = f"{PLANTED_PREFIX}{number}/{judge.name}"
    rows = [_row(answer, verdicts[at]) for at, answer in enumerate(answers)]
    writer.add_layer(layer, {"judge": judge.name, "version": PLANTED_VERSION, "answers": rows})
    writer.note_head()
    return layer


async def _ask(spending: Spending, judge: Judge, answer: PlantedAnswer) -> Verdict:
    with AskingAbout() as asking:
        charge = await admit_call(spending, judge.name, answer.question)
        verdict = await attempt(judge.judge, answer.question, answer.text)
    return as_verdict(settle_call(spending.meter, charge, verdict, asking))


def _row(answer: PlantedAnswer, verdict: Verdict) -> dict[str, str]:
    return {
        "answer": answer.name,
        "label": answer.label.value,
        "kind": answer.kind,
        "plant": answer.plant,
        "verdict": verdict.label.value,
    }
