"""A judge asked about planted answers; what it says of them is stored as a layer's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.errors import BudgetReached
from guardmark.engine.asking import Asker, Question
from guardmark.engine.calls import as_verdict
from guardmark.engine.plan import Spending
from guardmark.engine.supervision import supervise
from guardmark.judges.planted import PLANTED_VERSION, planted_answers
from guardmark.store.layers import PLANTED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.core.outcome import Verdict
    from guardmark.core.protocols import Judge
    from guardmark.engine.plan import Plan
    from guardmark.engine.supervision import StopSignal
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
    asker = Asker(plan.spending or Spending())

    async def ask_each(feed: Iterator[tuple[int, PlantedAnswer]]) -> None:
        for at, answer in feed:
            if stop.is_set or reached:
                return
            try:
                question = Question(judge.name, (answer.question, answer.text))
                verdicts[at] = as_verdict((await asker.put(judge.judge, question)).answer)
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


def _row(answer: PlantedAnswer, verdict: Verdict) -> dict[str, str]:
    return {
        "answer": answer.name,
        "label": answer.label.value,
        "kind": answer.kind,
        "plant": answer.plant,
        "verdict": verdict.label.value,
    }
