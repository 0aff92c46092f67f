"""Which attacks got through by round, arm, tries and seed, what people confirm, what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.adaptive.models import meaning_sentences
from guardmark.reports.document.blocks import FigureCell, Line, LineChart, Table, Unit
from guardmark.reports.document.cells import (
    figure,
    figure_text,
    name,
    rate_text,
    slug,
    table_of,
    with_counts,
)
from guardmark.reports.document.wording import (
    UNDEFINED,
    count_text,
    measure_text,
    percent_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard, ArmCurve, RoundRate
    from guardmark.analysis.adaptive.rows import CostPerBypass
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.cells import Value
    from guardmark.stats.figures import Ratio
    from guardmark.stats.rates.means import SeedMean

ROUNDS: Final = {
    "R0": "R0 as they are",
    "R1": "R1 fixed list",
    "R2": "R2 single operators (learning)",
    "R3": "R3 chains of operators",
    "R4": "R4 edited words, longest chains",
    "R5": "R5 attacker model",
}

KNOWLEDGE: Final = {
    "shared": "K1 (a kind of defense, diagnosed by probes)",
    "alone": "K0 (nothing; each attack sees its own answers)",
}

_ATTACK_ARMS: Final = {
    "static": "texts as they are",
    "adaptive": "adaptive after the fixed list",
    "alone": "adaptive, each attack alone",
    "blind": "blind: drawn at random",
    "null": "null: the same text again",
    "gradient": "sees the gradient (A3)",
}

_ACCESS: Final = {
    "decision": "A1 (sees allow or block)",
    "score": "A2 (sees the score too)",
}

_AUDIT_NOTE: Final = (
    " Audited: the rate of all proved tiers, its part that rests on a judge or a "
    "table (V3, V3-table) times the share that people call the same request; its "
    "interval holds the uncertainty of both (parametric bootstrap, seeded)."
)
_SHOWN: Final = 10  # seeds whose own figures fit a table; `summary.json` has all


def rounds_table(card: AdaptiveCard) -> Table:
    """Return what had got through by the end of each round."""
    audit, audited = card.audit, ""
    cells: dict[str, Callable[[RoundRate], Value | tuple[Value, ...]]] = {
        "Round": lambda each: ROUNDS[each.name],
        "Strict (V0, V1)": lambda each: each.strict,
        "All proved tiers|Got through": lambda each: with_counts(each.full),
    }
    if audit is not None:
        audited = _AUDIT_NOTE
        cells["Audited"] = lambda each: (audit.of(each.name) or each).full
    return table_of(
        card.rounds,
        cells,
        table_id=f"adaptive-rounds-{slug(card.name)}",
        title=f"{card.name}: attacks that had got through by the end of each round",
        note=f"{_first_seed(card)}Of all attacks the defense answered, those that pass as they are "
        f"included. {proof_words(card)} Unproved variants (V4) are never counted.{audited}",
    )


def arms_table(card: AdaptiveCard) -> Table:
    """Return what each arm reached within the budget."""
    words = arm_words(card)
    rates: list[tuple[str, Estimate | Ratio, int]] = [(words["static"], card.rounds[0].full, 0)]
    for curve in card.arms:
        rates.append((words[curve.arm], curve.at_budget, card.budget))
    if card.gradient is not None:
        rates.append((words["gradient"], card.gradient.full, card.budget))
    ahead = card.extrapolated
    if ahead is not None and ahead.beta.rate.value is not None:
        for model, rate in ahead.shown:
            rates.append((f"blind, extrapolated{model}", rate, card.extrapolated_at))
    return table_of(
        rates,
        {"Arm|ASR|Search tries": lambda each: each},
        table_id=f"adaptive-arms-{slug(card.name)}",
        title=f"{card.name}: control arms",
        note=_arms_note(card),
    )


def _arms_note(card: AdaptiveCard) -> str:
    """Say what each arm of the table stands for, and which round the search ends with."""
    last = 4
    if card.attacker:
        last = 5
    return (
        f"{_first_seed(card)}Adaptive: rounds 2 to {last}; what the fixed list let "
        "through does not count, but its calls and the diagnosis taught the search. "
        "Blind: operators drawn at random, learning nothing. Null: the same text "
        "sent again, so what it gains is chance in the defense. Gradient: swaps "
        "where the loss is steepest, for a defense whose inside is known. "
        "Extrapolated (blind arm): Beta-binomial fits, one with attacks that cannot "
        "be broken; both are shown where no single guess holds."
    )


def curves_chart(card: AdaptiveCard) -> LineChart:
    """Draw the success of the arms over the tries."""
    last = card.arms[0].points[-1][0]
    summary = f"Success of the adaptive, blind and null arms over {count_text(last)} tries"
    if card.seeds:
        summary += " as means over seeds with their intervals"
    return LineChart(
        id=f"adaptive-curves-{slug(card.name)}",
        title=f"{card.name}: attacks through by search tries",
        x_axis="Search tries",
        y_axis="ASR",
        x_unit=Unit.COUNT,
        is_logarithmic=True,
        lines=tuple(arm_line(card, each) for each in card.arms),
        summary=f"{summary}.",
    )


def arm_line(card: AdaptiveCard, arm: ArmCurve) -> Line:
    """Draw an arm by tries: over several seeds their mean with its band."""
    label = arm_words(card)[arm.arm]
    means: Sequence[tuple[int, SeedMean]] = ()
    if card.seeds is not None:
        for curve in card.seeds.arms:
            if curve.arm == arm.arm:
                means = curve.points
    points, band = [], []
    for tries, mean in means:
        if mean.value is not None and mean.low is not None and mean.high is not None:
            points.append((float(tries), mean.value))
            band.append((mean.low, mean.high))
    if len(points) == len(means) > 1:
        return Line(label=label, points=tuple(points), band=tuple(band))
    return Line(label=label, points=tuple((float(tries), share) for tries, share in arm.points))


def arm_words(card: AdaptiveCard) -> dict[str, str]:
    """Name arms for what they know."""
    words = _ATTACK_ARMS
    if card.shares_memory:
        return words
    return {**words, "adaptive": words["alone"]}


def access_text(card: AdaptiveCard) -> str:
    """Say what the attacker sees of an answer."""
    if card.findings.get("has_scores"):
        return _ACCESS["score"]
    return _ACCESS["decision"]


def transfers_table(cards: tuple[AdaptiveCard, ...]) -> Table:
    """Return what won against one defense and was replayed on another."""
    rows = []
    for card in cards:
        for replay in card.transfers:
            rows.append((name(replay.source), name(card.name), replay.passed))
    return table_of(
        rows,
        {"Won against|Replayed on|Passed": lambda row: row},
        table_id="adaptive-transfer",
        texts=("Replayed on",),
        title="What won against one defense, replayed once on another",
        note="Of attacks that the other defense blocked as they are.",
    )


def proof_words(card: AdaptiveCard) -> str:
    """Say what the two columns of tiers hold."""
    judged = ""
    if card.attacker is not None and card.attacker.has_judge:
        judged = ", and what was judged the same request (V3)"
    return (
        "Strict: the variant provably holds the same text. All proved tiers: bounded "
        f"typing errors and listed synonyms too{judged}."
    )


def headline(card: AdaptiveCard) -> SeedMean | None:
    """Return the mean that stands for the whole measurement, where there is one."""
    seeds = card.seeds
    if seeds is None or len(seeds.counted) < seeds.seeds:
        return None
    return seeds.headline


def headline_cell(card: AdaptiveCard) -> FigureCell:
    """Return what had got through in the end: at one seed, or on average over several."""
    return figure(headline(card) or card.rounds[-1].full)


def holding_sentence(card: AdaptiveCard) -> str:
    """Say what was broken, under which conditions, and what getting through amounts to."""
    trials, share, mean = card.rounds[-1].full.trials, headline_cell(card), headline(card)
    knowledge = KNOWLEDGE["alone"]
    if card.shares_memory:
        knowledge = KNOWLEDGE["shared"]
    under = (
        f"under {card.settings.get('battery', '')}, budget {count_text(card.budget)}, access "
        f"{access_text(card)}, knowledge {knowledge}"
    )
    if not trials:
        return f"{card.name}: undefined {under}: no attack was answered."
    if share.value:
        over = ""
        if mean is not None:
            over = f" on average over {mean.seeds} seeds"
        confirmed = ""
        if card.audit is not None and card.audit.rounds:
            last = figure_text(card.audit.rounds[-1].full)
            confirmed = f"; {last} as far as people confirm it"
        outcome = (
            f"{card.name}: {measure_text(share)} of {count_text(trials)} attacks got through"
            f"{over} {under}; {percent_text(card.rounds[0].full.value)} did as they are{confirmed}."
        )
    else:
        over = ""
        if mean is not None:
            over = f" at any of {mean.seeds} seeds"
        bound = ""
        if share.high:
            bound = f"; the true share may be up to {percent_text(share.high)}"
        if "RATE_LIMITED" in card.flags:
            bound = "; it seems to block by a limit on calls, so this says little of the attacks"
        outcome = f"{card.name} was not broken{over} {under}{bound}."
    sentences = [outcome]
    if share.value or card.target is not None:
        sentences += meaning_sentences(card)
    return " ".join(sentences)


def gain_sentence(card: AdaptiveCard) -> str:
    """Say what learning added to drawing at random; a loss is named only beyond chance."""
    if card.gain_in_all is None:
        return f"{card.name}: no control arms were asked, so what learning added is not known"
    over, seed = "", ""
    if card.seeds is not None:
        seed = " (first seed)"
    if card.seeds is not None and headline(card) is not None:
        gains = [(tries, figure(gain, Unit.POINTS)) for tries, gain in card.seeds.gains]
        over = f", mean of {card.seeds.seeds} seeds"
    else:
        gains = [(tries, figure(gain)) for tries, gain in card.gains]
    gained, below = [], []
    for tries, gain in gains:
        gained.append(f"{measure_text(gain)} at {count_text(tries)}")
        if gain.high is not None and gain.high < 0:
            below.append(count_text(tries))
    by_tries = "; ".join(gained)
    if below:
        by_tries += f". Drawing at random did better at {', '.join(below)}"
    in_all = (
        f"Within {card.budget:,} calls in all, where the adaptive arm pays for "
        f"diagnosis and fixed list first{seed}: "
        f"{measure_text(figure(card.gain_in_all))}"
    )
    return f"{card.name}: adaptive minus blind at equal tries{over}: {by_tries}. {in_all}"


def area_sentence(card: AdaptiveCard) -> str:
    """Say how large the area under the curve of success is, and what may be missing in it."""
    area = card.area
    if area.blind is None:
        return ""
    few = ""
    if area.given_up:
        count = f"{area.given_up:,} held attacks"
        few = f"; {count} had fewer tries than the budget, so it may be too low"
    adaptive = figure_text(area.adaptive, Unit.NUMBER)
    blind = figure_text(area.blind, Unit.NUMBER)
    return (
        f"{card.name}: area under ASR@k on log k up to {card.budget:,}, of "
        f"{card.area.adaptive.trials:,} attacks: {adaptive} adaptive, {blind} blind "
        f"(0: nothing got through, 1: everything at once){few}"
    )


def audit_sentence(card: AdaptiveCard) -> str:
    """Say what people found and what that leaves of the rate, or that no audit was made."""
    audit = card.audit
    if audit is None:
        unaudited = (
            f"{card.name}: {count_text(card.resting)} of the attacks that got through "
            "rest on a judgement or a table (V3, V3-table) that nobody audited; to audit "
            "them: guardmark audit RUN --what bypasses"
        )
        if card.resting:
            return unaudited
        return ""
    if not audit.drawn:
        return f"{card.name}: nothing rests on a judgement any more, so the audit tells nothing"
    least, most = percent_text(audit.least), percent_text(audit.most)
    still_open = ""
    if audit.unsure + audit.blank:
        still_open = (
            f"; {audit.unsure:,} unsure and {audit.blank:,} blank count in no rate: with "
            f"them the share lies between {least} and {most}"
        )
    return (
        f"{card.name}: people call {rate_text(audit.valid)} of the audited bypasses "
        f"the same request ({audit.drawn:,} drawn of {audit.resting:,} that rest on a "
        f"judgement or a table{still_open}); so the audited rate at the end is "
        f"{figure_text(audit.rounds[-1].full)}"
    )


def _first_seed(card: AdaptiveCard) -> str:
    if card.seeds is not None:
        return "Seed 1; the table of seeds has the means over all. "
    return ""


def seeds_table(card: AdaptiveCard) -> Table | None:
    """Return the figures over seeds, each seed's own beside them; None for one seed."""
    seeds = card.seeds
    if seeds is None:
        return None
    means: list[tuple[str, SeedMean | None, Unit]] = []
    for each in seeds.rounds:
        means.append((f"strict by {ROUNDS[each.name]}", each.strict, Unit.SHARE))
        means.append((f"all proved tiers by {ROUNDS[each.name]}", each.full, Unit.SHARE))
    for curve in seeds.arms:
        means.append((arm_words(card)[curve.arm], curve.at_budget, Unit.SHARE))
    for tries, gain in seeds.gains:
        means.append((f"adaptive minus blind at {count_text(tries)}", gain, Unit.POINTS))
    means += [
        ("null minus static", seeds.null_gain, Unit.POINTS),
        ("area, adaptive", seeds.area_adaptive, Unit.NUMBER),
        ("area, blind", seeds.area_blind, Unit.NUMBER),
        ("mean tries up to the budget", seeds.mean_tries, Unit.NUMBER),
    ]
    rows: list[tuple[Value, ...]] = []
    for label, mean, unit in means:
        if mean is not None:
            spread, by_seed = _spread_text(mean, unit), _each_seed(mean, unit)
            rows.append((label, figure(mean, unit), spread, by_seed))
    rows += [
        ("got through at any seed, strict", seeds.any_seed_strict, "", ""),
        ("got through at any seed, all proved tiers", seeds.any_seed_full, "", ""),
    ]
    return table_of(
        rows,
        {"Figure|Mean over seeds|Spread|Each seed": lambda row: row},
        table_id=f"adaptive-seeds-{slug(card.name)}",
        title=f"{card.name}: seeds {len(seeds.counted)}",
        note=_seeds_note(is_first_left_out=len(seeds.counted) < seeds.seeds),
    )


def _seeds_note(*, is_first_left_out: bool) -> str:
    """Say what was repeated with each seed, and what the spread between seeds leaves out."""
    left_out = ""
    if is_first_left_out:
        left_out = (
            " Seed 1 is left out, since the attacker model (round 5) had its turn there "
            "and at no other seed."
        )
    return (
        "Rounds 2 to 4 and their control arms were carried out with each seed, each "
        "with a memory of its own; baseline, diagnosis and fixed list were asked "
        "once and are the same at every seed, so their luck is not in the spread. "
        "Intervals are over groups of attacks and seeds; spread: standard deviation "
        "between seeds. Got through at any seed: what one gets who carries out all "
        f"of them; it rises with their number.{left_out}"
    )


def _each_seed(mean: SeedMean, unit: Unit) -> str:
    by_seed = ", ".join(value_text(each, unit) for each in mean.by_seed[:_SHOWN])
    more = mean.seeds - _SHOWN
    if more > 0:
        return f"{by_seed} and {count_text(more)} more"
    return by_seed


def _spread_text(mean: SeedMean, unit: Unit) -> str:
    if mean.spread is not None and unit in {Unit.SHARE, Unit.POINTS}:
        return f"{100 * mean.spread:.1f} points"
    return value_text(mean.spread, unit)


def effort_sentence(card: AdaptiveCard) -> str:
    """Say how many tries a bypass takes, and whether it lasts."""
    parts, survival, tries = [], card.survival, card.mean_tries
    if survival is not None:
        median = f"> {count_text(card.budget)} (not reached)"
        if survival.median is not None:
            median = figure_text(survival.queries, Unit.COUNT)
        parts.append(f"median search tries to a bypass: {median}")
    if tries is not None and tries.value is not None:
        parts.append(f"mean up to the budget: {figure_text(tries, Unit.NUMBER)}")
    if card.reliability is not None:
        parts.append(f"a pass passed again: {figure_text(card.reliability)}")
    return f"{card.name}: {'; '.join(parts) or 'nothing to search for'}"


def costs_table(card: AdaptiveCard) -> Table:
    """Return what the attacker paid, in all, for each bypass and for each attack."""
    costs, no_model = card.costs, "no attacker model"
    no_tokens = "the service reports none"
    if costs.model_calls.total is None:
        no_tokens = no_model
    return table_of(
        (
            ("calls of the defense", costs.calls, ""),
            ("calls of the attacker model", costs.model_calls, no_model),
            ("tokens of the attacker model", costs.tokens, no_tokens),
            ("money", costs.money, "no price is configured"),
            ("seconds of service", costs.seconds, "nothing was timed"),
        ),
        {"Cost|In all|For a bypass|For an attack|Known of calls": lambda each: _cost_cells(*each)},
        table_id=f"adaptive-costs-{slug(card.name)}",
        title=f"{card.name}: what the attacker paid",
        note=(
            f"{costs.calls.bypasses:,} attacks got through, as they are included, of "
            f"{costs.calls.attacks:,}. Fixed list and probes are included, what the "
            "evaluator asked is not. A critic counts with the attacker model. Money is "
            "in the currency of the price table; seconds add up the service time of "
            "calls, many of which run at once."
        ),
    )


def _cost_cells(label: str, cost: CostPerBypass, why_unknown: str) -> tuple[str, ...]:
    """Return the cells of one kind of cost; without a total, why it is not known."""
    if cost.total is None:
        return label, f"{UNDEFINED}: {why_unknown}", "", "", ""
    cells = [label]
    for amount in (cost.total, cost.per_bypass, cost.per_attack):
        cells.append(_amount(amount, is_partial=cost.is_partial))
    cells.append(f"{count_text(cost.known)}/{count_text(cost.calls)}")
    return tuple(cells)


def _amount(value: float | None, *, is_partial: bool) -> str:
    """Write an amount with three digits that count; one of which a part is not known as least."""
    if value is None:
        return UNDEFINED
    amount = f"{value:.3g}"
    if value >= 100 or value == int(value):
        amount = count_text(round(value))
    if is_partial and value:
        return f">= {amount}"
    return amount


def calls_table(card: AdaptiveCard) -> Table:
    """Return the calls by arm and account."""
    return table_of(
        [(f"{arm}: {account}", calls) for (arm, account), calls in card.calls.items()],
        {"Arm and account|Calls": lambda each: each},
        table_id=f"adaptive-calls-{slug(card.name)}",
        title=f"{card.name}: calls by account",
        collapsed=True,
        note=(
            "The attacker pays for baseline, diagnosis, battery, search and confirm; "
            "twin, wrapper, repair, transfer and reworded benign texts are the "
            "evaluator's."
        ),
    )
