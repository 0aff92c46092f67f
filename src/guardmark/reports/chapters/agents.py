"""The report on agents: what gets done, what attackers get done, and which guard earns its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.agents.figures import AgentReliance, ArmComparison
from guardmark.core.errors import counted
from guardmark.reports.chapters.agent_answer import outcome_words, write_agent_answer
from guardmark.reports.chapters.case_story import tell_case
from guardmark.reports.document.blocks import (
    Document,
    Headline,
    Line,
    LineChart,
    Listing,
    Paragraph,
    Section,
    Tone,
    muted,
    section,
    warning,
)
from guardmark.reports.document.cells import (
    figure,
    figure_text,
    name,
    table_of,
    with_counts,
    words,
)
from guardmark.reports.document.wording import UNDEFINED, count_text, date_text
from guardmark.stats.paired.amounts import FEWEST_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guardmark.analysis.agents.cases import CaseRow
    from guardmark.analysis.agents.counting import GuardPlace
    from guardmark.analysis.agents.figures import (
        AgentAnalysis,
        AgentArmFigures,
        ArmPair,
        GuardWithout,
    )
    from guardmark.analysis.agents.spending import CaseSpending
    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block, Cell, Part, Table
    from guardmark.reports.document.cells import Value
    from guardmark.stats.figures import Quantile
    from guardmark.stats.paired.amounts import AmountDifference

_TONES: Final = {
    AgentReliance.GOOD: Tone.GOOD,
    AgentReliance.NOT_ALONE: Tone.WARNING,
    AgentReliance.DO_NOT: Tone.BAD,
    AgentReliance.UNKNOWN: Tone.MUTED,
}
_STORY_LINES: Final = 10
_BOUNDS: Final = (
    "The obedient agent follows every order that it reads: over what a model does with these "
    "texts, utility is a lower bound and attack success an upper bound."
)


def write_agent_report(
    analysis: RunAnalysis,
    agent: AgentAnalysis,
    *,
    method: Sequence[Section],
    gate: GateResult | None = None,
) -> Document:
    """Write the report of a run of agents."""
    wordings = ""
    if agent.wordings:
        wordings = f", worded {', '.join(agent.wordings)}"
    about = (
        f"{', '.join(agent.suites)}: {counted(agent.tasks, 'task')}, "
        f"{counted(agent.injections, 'injection')}{wordings}; agents: {', '.join(agent.agents)}"
    )
    best = choose_arm(agent)
    ranked = [(title_of(arm, agent), arm) for arm in _in_order(agent)]
    return report_on_agents(
        analysis,
        title="Agent report",
        about=about,
        answer=write_agent_answer(agent, ranked, analysis.settings.limits, gate),
        verdicts=write_headlines(agent),
        sections=(
            _recommendations(agent, best),
            _arms_section(agent),
            _places_section(agent),
            _pairs_section(agent),
            _rows_section(agent),
            _cases_section(agent, best),
            *method,
        ),
    )


def report_on_agents(
    analysis: RunAnalysis,
    *,
    title: str,
    about: str,
    answer: tuple[str, ...] = (),
    verdicts: tuple[Headline, ...],
    sections: tuple[Section, ...],
) -> Document:
    """Put the report of a run of agents together; its subtitle ends with the day."""
    manifest = analysis.manifest
    return Document(
        title=f"{title}: {manifest.name}",
        subtitle=f"{about}; {date_text(manifest.created_utc)}",
        run=manifest.name,
        created_utc=manifest.created_utc,
        version=manifest.guardmark_version,
        confidence=analysis.settings.confidence,
        answer=answer,
        verdicts=verdicts,
        sections=sections,
    )


def write_headlines(agent: AgentAnalysis) -> tuple[Headline, ...]:
    """Write a verdict for each arm, the most useful first, bare ones last."""
    return tuple(_headlines(agent))


def _headlines(agent: AgentAnalysis) -> Iterator[Headline]:
    """Write a verdict for each arm; what holds of all of them stands with the first."""
    for index, arm in enumerate(_in_order(agent)):
        headline = _headline(arm, agent)
        if index == 0 and agent.scripted:
            headline = replace(headline, notes=(_BOUNDS, *headline.notes))
        yield headline


def _recommendations(agent: AgentAnalysis, best: AgentArmFigures | None) -> Section:
    return section("recommendations", "Recommendations", list(_advice(agent, best)))


def _in_order(agent: AgentAnalysis) -> list[AgentArmFigures]:
    """Return arms with guards first, the most useful first, and bare ones last."""
    return sorted(agent.arms, key=lambda arm: (not arm.guards, _cost(arm)))


def _cost(arm: AgentArmFigures) -> float:
    """Return attack success plus lost tasks: what an arm leaves and costs, each weighing alike."""
    success = arm.row.attack_success.value
    if success is None:
        success = 1.0
    return success + (1.0 - (arm.row.utility.value or 0.0))


def choose_arm(agent: AgentAnalysis) -> AgentArmFigures | None:
    """Return the arm with guards that leaves and costs least, or None without any."""
    guarded = [arm for arm in agent.arms if arm.guards]
    return min(guarded, key=_cost, default=None)


def title_of(arm: AgentArmFigures, agent: AgentAnalysis) -> str:
    """Return the name of an arm, with its agent where there are several."""
    if len(agent.agents) == 1:
        return arm.row.arm
    return f"{arm.row.arm} with {arm.row.agent}"


def _headline(arm: AgentArmFigures, agent: AgentAnalysis) -> Headline:
    """Write the verdict of one arm; one without a guard has rates and no verdict."""
    title = title_of(arm, agent)
    row = arm.row
    through = f"attack success {figure_text(row.attack_success)}"
    utility = f"utility {figure_text(row.utility)}"
    under = f"utility under attack {figure_text(row.utility_under_attack)}"
    guards, answer, reason = "no guard", "", ""
    if arm.guards:
        guards = " -> ".join(arm.guards)
        answer, reason = arm.reliance.value, outcome_words(arm)
    return Headline(
        defense=title,
        title=f"{title} ({guards})",
        key=title,
        sentence=f"{through}; {utility}; {under}",
        answer=answer,
        tone=_TONES[arm.reliance],
        reason=reason,
        baseline=not arm.guards,
        notes=tuple(_notes(arm)),
        error=_cost(arm) / 2.0,
    )


def _notes(arm: AgentArmFigures) -> Iterator[str]:
    """Say which cases are counted beside the rates."""
    row = arm.row
    if row.failed:
        yield f"In {count_text(row.failed)} cases the agent failed: nothing is known of them."
    if row.by_policy:
        yield (
            f"In {count_text(row.by_policy)} cases a guard gave no decision and the policy stood "
            "in for it; these are counted beside, not inside."
        )


def _advice(agent: AgentAnalysis, best: AgentArmFigures | None) -> Iterator[str]:
    """Say which arm to use, and how sure that is."""
    if best is None:
        yield "Add an arm with a guard: this run shows the agent alone."
        return
    title, words = title_of(best, agent), outcome_words(best)
    rate = f"attack success {figure_text(best.row.attack_success)}"
    if best.after_choice is not None:
        guarded = [arm for arm in agent.arms if arm.guards]
        rate += (
            f"; as the best of {len(guarded)} arms it is flattered: allowing for the choice, "
            f"{figure_text(best.after_choice)}"
        )
    useful = f"utility {figure_text(best.row.utility)}"
    if best.reliance is AgentReliance.GOOD:
        yield f"Use {title}: it {words} ({rate}, {useful})."
    elif best.reliance is AgentReliance.UNKNOWN:
        yield (
            f"{title} looks best and {words} ({rate}, {useful}), but these data cannot tell "
            "whether one may rely on it. More injections narrow the interval, more tasks hardly do."
        )
    elif best.reliance is AgentReliance.DO_NOT:
        yield (
            f"Rely on none of these arms. The best, {title}, {words} ({rate}, {useful}). "
            "Try another guard, or another place."
        )
    else:
        yield (
            f"Of these arms {title} leaves and costs least: it {words} ({rate}, {useful}). That is "
            "not enough alone: add what stops the rest, and read the cases below."
        )
    yield from _idle_guards(best, agent)


def _idle_guards(arm: AgentArmFigures, agent: AgentAnalysis) -> Iterator[str]:
    """Name guards without which an arm stops as many attacks."""
    for without in arm.without:
        added = without.attacks_added.value
        if added is not None and added <= 0.0:
            yield (
                f"{without.guard} adds nothing to {title_of(arm, agent)}: without it as many "
                f"attacks are stopped, and utility is {figure_text(without.utility)}."
            )


def _arms_section(agent: AgentAnalysis) -> Section:
    """Write arms, what their cases take, and their picture; warn of few injections."""
    parts: list[Part] = [_arms_table(agent)]
    if agent.spending:
        parts.append(spending_table(agent.spending))
    parts.append(_plane(agent))
    if agent.scripted:
        parts.append(_BOUNDS)
    if agent.injections and agent.injections < 10:
        few = (
            f"{agent.injections} injections make wide intervals over injections like these; more "
            "injections would help, not more tasks."
        )
        parts.append(warning(few))
    return section("agents", "Arms", *parts)


def _verdict(arm: AgentArmFigures) -> str:
    if arm.guards:
        return arm.reliance.value
    return "no guard"


def _false_blocks(arm: AgentArmFigures) -> Value:
    """Return how often guards block benign cases; nothing where there is no guard."""
    if arm.guards:
        return figure(arm.false_blocks)
    return ""


def _arms_table(agent: AgentAnalysis) -> Table:
    return table_of(
        _in_order(agent),
        {
            "Arm": lambda arm: name(title_of(arm, agent)),
            "Verdict": _verdict,
            "Attack success: Share of attack cases whose injection was done": lambda arm: figure(
                arm.row.attack_success
            ),
            "Utility: Share of benign cases whose task was done": lambda arm: figure(
                arm.row.utility
            ),
            "Utility under attack: Share of attack cases whose task was done": lambda arm: figure(
                arm.row.utility_under_attack
            ),
            "False blocks: Share of benign cases in which a guard blocked anything": _false_blocks,
            "Guards add, p50 / p95: Time of the guards in a case": lambda arm: times_text(
                arm.guards_ms
            ),
            "Failed": lambda arm: arm.row.failed or "",
            "By policy": lambda arm: arm.row.by_policy or "",
        },
        table_id="agent-arms",
        title="What gets done, and what attackers get done",
        texts=("Verdict", "Guards add, p50 / p95"),
        note=(
            "Intervals hold over tasks and injections like these; cases in which the agent failed, "
            "or a policy stood in for a guard, are counted beside."
        ),
    )


def spending_table(spending: Sequence[CaseSpending]) -> Table:
    """Tell what the cases of each arm take, as if the arm had run alone."""
    shown_agents = _named_where_several(each.agent for each in spending)
    return table_of(
        spending,
        {
            "Arm": lambda each: name(each.arm),
            "Agent": lambda each: shown_agents[each.agent],
            "Calls of": lambda each: each.of,
            "Cases": lambda each: each.cases,
            "Calls a case": lambda each: f"{each.calls / each.cases:.1f}",
            "Tokens a case, p50 / p95: Read and written, of cases that told both": lambda each: (
                _counts_text(each.tokens)
            ),
            "Tokens read": lambda each: _sum_text(
                each.tokens_read, each.cases_with_tokens, each.cases
            ),
            "Tokens written": lambda each: _sum_text(
                each.tokens_written, each.cases_with_tokens, each.cases
            ),
            "Money a case, p50 / p95: Of cases all of whose calls have a price": lambda each: (
                _money_text(each.money)
            ),
            "Money": _paid,
        },
        table_id="agent-spending",
        title="What a case takes",
        texts=(
            "Agent",
            "Calls of",
            "Calls a case",
            "Tokens a case, p50 / p95",
            "Tokens read",
            "Tokens written",
            "Money a case, p50 / p95",
            "Money",
        ),
        note=(
            "As if each arm had run alone: an answer that arms share is asked for once and counts "
            "in each. What was not told, or has no price, is undefined and in no sum."
        ),
    )


def _named_where_several(agents: Iterable[str]) -> dict[str, Cell]:
    """Return what stands for each agent in a table: its name, or nothing where there is one."""
    distinct = set(agents)
    if len(distinct) == 1:
        return dict.fromkeys(distinct, words(""))
    return {agent: name(agent) for agent in distinct}


def _sum_text(total: int | None, cases: int, every: int) -> str:
    """Write a sum over the cases that told it, and how many where that is not all."""
    if total is None:
        return UNDEFINED
    over = ""
    if cases != every:
        over = f" in {count_text(cases)} cases"
    return f"{count_text(total)}{over}"


def _paid(each: CaseSpending) -> str:
    if each.cost is None:
        return UNDEFINED
    over = ""
    if each.cases_with_price != each.cases:
        over = f" in {count_text(each.cases_with_price)} cases"
    return f"{each.cost:.4g}{over}"


def _values_of(quantiles: Sequence[Quantile]) -> list[float]:
    """Return the values of quantiles; nothing where one of them is unknown."""
    values = []
    for quantile in quantiles:
        if quantile.value is None:
            return []
        values.append(quantile.value)
    return values


def _counts_text(counts: Sequence[Quantile]) -> str:
    return " / ".join(count_text(round(value)) for value in _values_of(counts)) or UNDEFINED


def _money_text(money: Sequence[Quantile]) -> str:
    return " / ".join(f"{value:.4g}" for value in _values_of(money)) or UNDEFINED


def times_text(times: Sequence[Quantile]) -> str:
    """Write median and 95th percentile of times; nothing where one is unknown."""
    return " / ".join(f"{value:.1f} ms" for value in _values_of(times))


def _plane(agent: AgentAnalysis) -> LineChart | None:
    """Draw each arm by the tasks it loses and the attacks that get through."""
    lines, sentences = [], []
    for arm in _in_order(agent):
        success, utility = arm.row.attack_success, arm.row.utility
        if success.value is None or utility.value is None:
            continue
        title = title_of(arm, agent)
        lost = 1.0 - utility.value
        band = _ends(success.low, success.high)
        reach = _ends(_complement(utility.high), _complement(utility.low))
        lines.append(Line(label=title, points=((lost, success.value),), band=band, reach=reach))
        sentences.append(
            f"{title}: attack success {figure_text(success)}, utility {figure_text(utility)}."
        )
    if not lines:
        return None
    return LineChart(
        id="agent-plane",
        title="Attacks that succeed against tasks that are lost (lower left is better)",
        x_axis="tasks not done",
        y_axis="attack success",
        lines=tuple(lines),
        limits=(0.05, 0.10),
        summary=" ".join(sentences),
    )


def _complement(value: float | None) -> float | None:
    if value is None:
        return None
    return 1.0 - value


def _ends(low: float | None, high: float | None) -> tuple[tuple[float, float], ...]:
    if low is None or high is None:
        return ()
    return ((low, high),)


def _places_section(agent: AgentAnalysis) -> Section:
    """Write what guards stopped by place, and each arm without each of its guards."""
    rows, without = [], []
    for arm in agent.arms:
        title = title_of(arm, agent)
        for place in arm.places:
            rows.append((title, place))
        for each in arm.without:
            without.append((title, each))
    parts: list[Part] = []
    if rows:
        parts.append(places_table(rows, stops="Attacks stopped here"))
    if without:
        parts.append(_left_out_table(without))
    return section(
        "agent-places",
        "Where attacks were stopped, and what guards block by mistake",
        *parts,
        otherwise="No arm of this run has a guard.",
    )


def _left_out_table(without: Sequence[tuple[str, GuardWithout]]) -> Table:
    return table_of(
        without,
        {
            "Arm": lambda row: name(row[0]),
            "Without": lambda row: name(row[1].guard),
            "Attack success then": lambda row: figure(row[1].attack_success),
            "Attacks it adds: Attack success without it, less that with it": lambda row: figure(
                row[1].attacks_added
            ),
            "Utility then": lambda row: figure(row[1].utility),
            "Utility it costs": lambda row: figure(row[1].utility_added),
        },
        table_id="agent-without",
        title="Each guard left out once",
        texts=("Without",),
    )


def places_table(rows: Sequence[tuple[str, GuardPlace]], *, stops: str) -> Table:
    """Tell what each guard did at each place; `stops` is the head of what it stopped there."""
    return table_of(
        rows,
        {
            "Arm": lambda row: name(row[0]),
            "Place": lambda row: row[1].place,
            "Guard": lambda row: name(row[1].guard),
            stops: lambda row: _share_of_stops(row[1]),
            "False blocks: Benign cases in which it blocked something here|Cases": lambda row: (
                with_counts(row[1].false_blocks)
            ),
            "Benign texts blocked|Texts": lambda row: with_counts(row[1].benign_texts),
            "Rewritten": lambda row: row[1].rewritten or "",
            "Changed later: Definitions of tools told otherwise than in an earlier list": (
                lambda row: row[1].changed or ""
            ),
            "Flagged": lambda row: row[1].flagged or "",
            "No decision": lambda row: row[1].failed or "",
            "Asked": lambda row: row[1].calls,
            "p50 / p95": lambda row: times_text(row[1].latency_ms),
        },
        table_id="agent-places",
        title="By place and guard",
        texts=("Place", "Guard", stops, "Cases", "Texts", "p50 / p95"),
    )


def _share_of_stops(place: GuardPlace) -> str:
    return f"{count_text(place.stopped)} of {count_text(place.attacks)}"


def _pairs_section(agent: AgentAnalysis) -> Section:
    title = "Arms against each other"
    if not agent.pairs:
        return section("agent-pairs", title, otherwise="There is one arm.")
    return section("agent-pairs", title, _pairs_table(agent.pairs), _more_table(agent.pairs))


def comparison_document(
    runs: Sequence[str], pairs: Sequence[ArmPair], spending: Sequence[CaseSpending] = ()
) -> Document:
    """Write a comparison of arms, of one run or of several, and what their cases take."""
    takes = None
    if spending:
        takes = spending_table(spending)
    more = _more_table(pairs)
    if more is not None:
        more = replace(more, collapsed=False)
    return Document(
        title="Arms against each other",
        subtitle=", ".join(runs),
        sections=(section("agent-pairs", "", _pairs_table(pairs), more, takes),),
    )


def _pairs_table(pairs: Sequence[ArmPair]) -> Table:
    """Set two arms against each other, case by case, for each pair."""
    shown_agents = _named_where_several(pair.agent for pair in pairs)
    return table_of(
        pairs,
        {
            "First": lambda pair: name(pair.first),
            "Second": lambda pair: name(pair.second),
            "Agent": lambda pair: shown_agents[pair.agent],
            "The first is": lambda pair: pair.standing.value,
            "Attack success: First less second": lambda pair: figure(pair.attack_success),
            "Utility: First less second": lambda pair: figure(pair.utility),
        },
        table_id="agent-pairs",
        title="Arms against each other, case by case",
        texts=("Second", "Agent", "The first is"),
        note=(
            f"{ArmComparison.TRADE_OFF.value}: fewer attacks succeed and fewer tasks get done, or "
            "more of both."
        ),
    )


_TAKEN: Final = {
    ("agent", "calls"): "calls of the model",
    ("agent", "tokens"): "tokens of the model",
    ("agent", "money"): "money for the model",
    ("guards", "calls"): "calls of guards",
    ("guards", "tokens"): "tokens of guards",
    ("guards", "money"): "money for guards",
    ("guards", "time_ms"): "time of guards, ms",
}


def _more_table(pairs: Sequence[ArmPair]) -> Table | None:
    """Tell what a case takes more in one arm than in another; nothing where nobody counted it."""
    rows = []
    for pair in pairs:
        rows += [(pair, more) for more in pair.spending]
    if not rows:
        return None
    shown_agents = _named_where_several(pair.agent for pair in pairs)
    return table_of(
        rows,
        {
            "First": lambda row: name(row[0].first),
            "Second": lambda row: name(row[0].second),
            "Agent": lambda row: shown_agents[row[0].agent],
            "A case takes": lambda row: _TAKEN[row[1].of, row[1].what],
            "Benign cases: First less second, and both means|Tasks": lambda row: (
                _more_text(row[1].benign),
                _pairs_text(row[1].benign, "tasks"),
            ),
            "Attacks: First less second, and both means|Cases": lambda row: (
                _more_text(row[1].attacks),
                _pairs_text(row[1].attacks_here, "tasks"),
            ),
            "Over these injections": lambda row: _gap_text(row[1].attacks_here),
        },
        table_id="agent-more",
        title="What a case takes more in one arm than in another",
        texts=(
            "Second",
            "Agent",
            "A case takes",
            "Benign cases",
            "Tasks",
            "Attacks",
            "Cases",
            "Over these injections",
        ),
        note=(
            "Means of differences case by case. Limits hold over tasks like these, and those of "
            "attacks over injections like these; `over these injections` says nothing of others. "
            f"Fewer than {FEWEST_GROUPS} tasks carry no limits: they may lack what takes most."
        ),
        collapsed=True,
    )


def _more_text(gap: AmountDifference) -> str:
    """Write a difference with its limits, and the two means that it stands between."""
    if gap.value is None or gap.first is None or gap.second is None:
        return UNDEFINED
    return f"{_gap_text(gap)} ({gap.first:.4g} against {gap.second:.4g})"


def _gap_text(gap: AmountDifference) -> str:
    if gap.value is None:
        return UNDEFINED
    if gap.low is None or gap.high is None:
        return f"{gap.value:+.3g}, no interval"
    return f"{gap.value:+.3g} [{gap.low:+.3g}, {gap.high:+.3g}]"


def _pairs_text(gap: AmountDifference, of: str) -> str:
    if not gap.pairs:
        return ""
    return f"{count_text(gap.pairs)} cases of {count_text(gap.groups)} {of}"


def _rows_section(agent: AgentAnalysis) -> Section:
    """Write the rates of each suite and wording by themselves."""
    table = table_of(
        agent.rows,
        {
            "Arm": lambda row: name(row.arm),
            "Agent": lambda row: name(row.agent),
            "Suite": lambda row: row.suite,
            "Wording": lambda row: row.injection,
            "Attack success|Cases": lambda row: with_counts(row.attack_success),
            "Over these injections": lambda row: figure(row.attack_success_here),
            "Utility|Tasks": lambda row: with_counts(row.utility),
            "Utility under attack": lambda row: figure(row.utility_under_attack),
        },
        table_id="agent-rows",
        title="By suite and wording",
        texts=("Agent", "Suite", "Wording", "Cases", "Tasks"),
        note=(
            "`Attack success` holds over injections like these; `over these injections` says "
            "nothing of other injections, and is narrower."
        ),
        collapsed=True,
    )
    return section("agent-rows", "By suite and wording", table)


def _cases_section(agent: AgentAnalysis, best: AgentArmFigures | None) -> Section:
    """Tell three cases: an attack that got through, a task that was lost, an attack stopped."""
    if best is None:
        return section("agent-cases", "Cases that decide most", otherwise="No arm has a guard.")
    wanted_arm = (best.row.arm, best.row.agent)
    rows = next(each.rows for each in agent.run.stated if (each.arm, each.agent) == wanted_arm)
    wanted = (
        ("An attack that got through", _is_bypass),
        ("A task that was lost", _is_loss),
        ("An attack that was stopped", _is_stop),
    )
    title = title_of(best, agent)
    return Section(
        id="agent-cases",
        title=f"Cases that decide most, of {title}",
        blocks=story_blocks(rows, wanted, arm=title, prefix="agent-case"),
    )


def story_blocks(
    rows: Sequence[CaseRow],
    wanted: Sequence[tuple[str, Callable[[CaseRow], bool]]],
    *,
    arm: str,
    prefix: str,
) -> tuple[Block, ...]:
    """Tell the first case of each kind that is wanted, in ten lines each."""
    blocks: list[Block] = [Paragraph(text="Read more with `guardmark show RUN CASE`.")]
    for index, (title, fits) in enumerate(wanted):
        row = _first(rows, fits)
        if row is None:
            blocks.append(muted(f"{title}: none in {arm}."))
            continue
        lines = [f"{head}: {text}" for head, text in tell_case(row, most=_STORY_LINES)]
        blocks.append(
            Listing(id=f"{prefix}-{index}", title=f"{title}: {row.case.id}", lines=tuple(lines))
        )
    return tuple(blocks)


def _first(rows: Sequence[CaseRow], fits: Callable[[CaseRow], bool]) -> CaseRow | None:
    for row in rows:
        if fits(row):
            return row
    return None


def _is_bypass(row: CaseRow) -> bool:
    return row.is_decided and row.result.injection_done is True


def _is_loss(row: CaseRow) -> bool:
    return row.is_decided and not row.case.is_attack and row.result.task_done is False


def _is_stop(row: CaseRow) -> bool:
    return row.is_decided and row.stopped_by is not None
