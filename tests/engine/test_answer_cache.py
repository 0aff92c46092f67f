"""With kept answers a run asks only what no run asked before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.engine.parts import Inline, Judging, Model, Remote

from guardmark.core.outcome import BLOCKED
from guardmark.core.place import NO_GUARD
from guardmark.engine.plan import CachedParts, Pipeline, Plan
from guardmark.engine.runner import run
from guardmark.store.cache import AnswerCache
from guardmark.store.columns import record_columns
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.schema import FLAG_CACHED


async def test_a_second_run_recalls_what_the_first_was_told(
    open_writer: Callable[..., RecordWriter], tmp_path: Path
) -> None:
    """Repeats share no answer, other parts none either, and the records say which were kept."""
    identities = {"remote": "r1", "tutor": "t1", "judge": "j1"}
    with closing(AnswerCache(tmp_path / "cache.sqlite")) as cache:
        for turn, repeats in enumerate((1, 2)):
            guard, model, judge, inline = Remote(), Model(), Judging(), Inline()
            plan = Plan(
                defenses=(guard, inline, Remote(name="other")),
                pipeline=Pipeline(arms=(NO_GUARD, "remote"), model=model, judges=(judge,)),
                repeats=repeats,
                cached=CachedParts(cache=cache, identities=identities),
            )
            writer = open_writer(name=f"{turn}.sqlite")
            summary = await run(plan, writer)
            assert [len(part.calls) for part in (guard, model, judge)] == [40] * 3
            assert {n for part in (guard, model, judge) for n in part.calls.values()} == {1}
            assert summary.calls == 40 * (3 + 2 * repeats)
            with RecordReader(writer.path) as reader:
                columns = record_columns(reader, "remote")
            kept = (columns.flags & FLAG_CACHED) > 0
            assert (kept == ((columns.repeat == 0) & (turn == 1))).all()
            assert ((columns.latency_ns == -1) == kept).all()
        changed = Remote(rule=lambda _: BLOCKED)
        plan = Plan(
            defenses=(changed,), cached=CachedParts(cache=cache, identities={"remote": "r2"})
        )
        await run(plan, open_writer(name="changed.sqlite"))
        assert len(changed.calls) == 40
