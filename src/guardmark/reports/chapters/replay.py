"""The report on guards before stored runs: orders they would have stopped, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.errors import counted
from guardmark.reports.chapters.agents import (
    places_table,
    report_on_agents,
    story_blocks,
    times_text,
)
from guardmark.reports.document.blocks import (
    Headline,
    Section,
    Tone,
    muted,
    section,
    warning,
)
from guardmark.reports.document.cells import figure, figure_text, name, table_of, with_counts
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.agents.replay import ReplayAnalysis, ReplayArm
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Document, FigureCell, Part, Table
    from guardmark.reports.document.cells import Value

_UTILITY: Final = (
    "Utility and attack success are unknown: what the agent would have done after a block stands "
    "in no stored run. So these figures are about what it would have been shown."
)


def write_replay_report(
    analysis: RunAnalysis, replay: ReplayAnalysis, *, method: Sequence[Section]
) -> Document:
    """Write the report of a run that put guards before stored runs."""
    of_injections = ""
    if replay.injections:
        of_injections = f", {counted(replay.injections, 'injection')}"
    about = (
        f"stored runs of {', '.join(replay.suites)}: {count_text(replay.attacks)} with an "
        f"injection, {count_text(replay.benign)} without; "
        f"{counted(replay.tasks, 'task')}{of_injections}"
    )
    best = _best(replay)
    return report_on_agents(
        analysis,
        title="Stored runs before guards",
        about=about,
        verdicts=write_replay_headlines(replay),
        sections=(
            section("recommendations", "Recommendations", list(_advice(replay, best))),
            _arms_section(replay),
            _places_section(replay),
            _pairs_section(replay),
            _cases_section(replay, best),
            *method,
        ),
    )


def write_replay_headlines(replay: ReplayAnalysis) -> tuple[Headline, ...]:
    """Write a sentence for each arm, the most useful first, bare ones last."""
    headlines = []
    for index, arm in enumerate(_in_order(replay)):
        notes: tuple[str, ...] = ()
        if index == 0:  # what holds of all of them stands with the first
            notes = (_UTILITY,)
        headline = Headline(
            defense=arm.arm,
            title=f"{arm.arm} ({' -> '.join(arm.guards) or 'no guard'})",
            key=arm.arm,
            sentence=_sentence(arm),
            answer="",
            tone=Tone.MUTED,
            reason="",
            baseline=not arm.guards,
            notes=notes,
            error=_cost(arm) / 2.0,
        )
        headlines.append(headline)
    return tuple(headlines)


def _sentence(arm: ReplayArm) -> str:
    if not arm.guards:
        return "stored runs as they are: every order comes through, and nothing is blocked"
    return (
        f"orders stopped before the agent read them {figure_text(arm.stopped)}; "
        f"runs without an attack that it blocks {figure_text(arm.false_blocks)}"
    )


def _cost(arm: ReplayArm) -> float:
    """Return orders that come through plus runs blocked by mistake, each weighing alike."""
    stopped = arm.stopped.value or 0.0
    false_blocks = arm.false_blocks.value or 0.0
    return 1.0 - stopped + false_blocks


def _in_order(replay: ReplayAnalysis) -> list[ReplayArm]:
    return sorted(replay.arms, key=lambda arm: (not arm.guards, _cost(arm)))


def _best(replay: ReplayAnalysis) -> ReplayArm | None:
    """Return the arm with guards that leaves and costs least, or None without any."""
    guarded = [arm for arm in replay.arms if arm.guards]
    return min(guarded, key=_cost, default=None)


def _advice(replay: ReplayAnalysis, best: ReplayArm | None) -> Iterator[str]:
    """Say which arm would have stopped most for what it costs, and what that does not show."""
    if best is None:
        yield "Add an arm with a guard: this run shows stored runs to none."
        return
    if not replay.shown:
        yield (
            "No stored result shows an order that the runs state, so nothing can be said of what "
            "guards would have stopped; what they block by mistake stands below."
        )
    else:
        yield (
            f"Of these arms {best.arm} would have stopped most for what it costs: "
            f"{_sentence(best)}."
        )
    yield (
        "Measure it with an agent (agent.suite) before you rely on it: only that says whether the "
        "work still gets done."
    )


def _arms_section(replay: ReplayAnalysis) -> Section:
    parts: list[Part] = [_arms_table(replay), _UTILITY]
    for note in _beside(replay):
        parts.append(muted(f"{note}."))
    for note in replay.notes:
        parts.append(warning(f"{note.rstrip('.')}."))
    return section("replay", "Arms", *parts)


def _beside(replay: ReplayAnalysis) -> Iterator[str]:
    """Say which attacks stand in no rate of orders stopped."""
    if replay.not_shown:
        yield (
            f"In {count_text(replay.not_shown)} of {count_text(replay.attacks)} attacks no stored "
            "result shows the order: they are not in the rate of orders stopped"
        )
    if replay.unknown:
        yield (
            f"{count_text(replay.unknown)} of {count_text(replay.attacks)} attacks do not state "
            "what was planted, so no result can be told to show it: they are not in that rate"
        )


def _of_guards(arm: ReplayArm, rate: Estimate) -> FigureCell | str:
    """Return what the guards of an arm did; nothing where it has none."""
    if not arm.guards:
        return ""
    return figure(rate)


def _of_those_that_worked(arm: ReplayArm) -> tuple[Value, ...]:
    if not arm.guards:
        return "", ""
    return with_counts(arm.stopped_done)


def _arms_table(replay: ReplayAnalysis) -> Table:
    holds = "The runs do not name their injections: intervals hold over tasks like these"
    if replay.injections:
        holds = "Intervals hold over tasks and injections like these"
    return table_of(
        _in_order(replay),
        {
            "Arm": lambda arm: name(arm.arm),
            "Orders stopped: Attacks whose order was stopped at or before the result that first "
            "shows it": lambda arm: _of_guards(arm, arm.stopped),
            "At the order itself: The result that first shows the order was stopped, and not only "
            "a text before it": lambda arm: _of_guards(arm, arm.stopped_itself),
            "Over these injections: Orders stopped, and these injections alone": lambda arm: (
                _of_guards(arm, arm.stopped_here)
            ),
            "Of those that worked: The same of attacks whose injection was done in the stored "
            "run|Runs": _of_those_that_worked,
            "Blocked anywhere: Attacks in which anything was blocked": lambda arm: _of_guards(
                arm, arm.blocked
            ),
            "False blocks: Runs without an attack in which anything was blocked": lambda arm: (
                _of_guards(arm, arm.false_blocks)
            ),
            "Guards take, p50 / p95: Time of the guards in a run": lambda arm: times_text(
                arm.guards_ms
            ),
            "By policy": lambda arm: arm.by_policy or "",
        },
        table_id="replay-arms",
        title="What guards would have stopped",
        texts=("Runs", "Guards take, p50 / p95"),
        note=f"{holds}; runs in which a policy stood in for a guard are counted beside.",
    )


def _places_section(replay: ReplayAnalysis) -> Section:
    rows = []
    for arm in replay.arms:
        rows += [(arm.arm, place) for place in arm.places]
    table = None
    if rows:
        table = places_table(rows, stops="Orders stopped here")
    return section(
        "replay-places",
        "Where orders were stopped, and what guards block by mistake",
        table,
        otherwise="No arm of this run has a guard.",
    )


def _pairs_section(replay: ReplayAnalysis) -> Section:
    title = "Arms against each other"
    if not replay.pairs:
        return section("replay-pairs", title, otherwise="There is one arm.")
    table = table_of(
        replay.pairs,
        {
            "First": lambda pair: name(pair.first),
            "Second": lambda pair: name(pair.second),
            "Orders stopped: First less second": lambda pair: figure(pair.stopped),
            "False blocks: First less second": lambda pair: figure(pair.false_blocks),
        },
        table_id="replay-pairs",
        title="Arms against each other, run by run",
        texts=("Second",),
    )
    return section("replay-pairs", title, table)


def _cases_section(replay: ReplayAnalysis, best: ReplayArm | None) -> Section:
    """Tell three runs: an order that comes through, a block by mistake, an order stopped."""
    if best is None:
        return section("replay-cases", "Runs that decide most", otherwise="No arm has a guard.")
    rows = next(arm.rows for arm in replay.run.stated if arm.arm == best.arm)
    wanted = (
        ("An order that comes through", lambda row: row.is_decided and row.is_let_through),
        ("A block by mistake", lambda row: row.is_decided and row.is_lost),
        ("An order that was stopped", lambda row: row.is_decided and row.stopped_by is not None),
    )
    return Section(
        id="replay-cases",
        title=f"Runs that decide most, of {best.arm}",
        blocks=story_blocks(rows, wanted, arm=best.arm, prefix="replay-case"),
    )
