"""Which attacks got through by round, arm and tries, and what people confirm of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.adaptive.seeds import (
    arm_rows,
    first_seed,
    headline,
    of_mean,
    round_rows,
    seed_line,
)
from guardmark.reports.chapters.adaptive.target_model import meaning_sentences
from guardmark.reports.chapters.adaptive.threat_model import ACCESS, KNOWLEDGE
from guardmark.reports.document.blocks import Line, LineChart, Table, Tone, Unit
from guardmark.reports.document.cells import (
    columns,
    counts,
    figure,
    name,
    of_difference,
    of_estimate,
    of_ratio,
    rate_text,
    row,
    slug,
)
from guardmark.reports.document.wording import count_text, measure_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.audited import AuditCard
    from guardmark.analysis.adaptive.card import AdaptiveCard, AdaptivePair, ArmCurve, RoundRate
    from guardmark.reports.document.blocks import FigureCell


AUDITED = "Audited"
"""Head of the column beside `All proved tiers`."""

AUDIT_NOTE = (
    " Audited: the rate of all proved tiers, its part that rests on a judge or a table (V3, "
    "V3-table) times the share that people call the same request; its interval holds the "
    "uncertainty of both (parametric bootstrap, seeded)."
)

ROUNDS: Final = {
    "R0": "as they are",
    "R1": "fixed list",
    "R2": "single operators (learning)",
    "R3": "chains of operators",
    "R4": "parts of the text",
    "R5": "attacker model",
}


def rounds_table(card: AdaptiveCard) -> Table:
    """Return what had got through by the end of each round."""
    audited = () if card.audit is None else (AUDITED,)
    return Table(
        id=f"adaptive-rounds-{slug(card.name)}",
        title=f"{card.name}: attacks that had got through by the end of each round",
        columns=columns("Round", "Strict (V0, V1)", "All proved tiers", "Fell", *audited),
        rows=tuple(
            row(
                f"{each.name} {ROUNDS[each.name]}",
                each.strict,
                each.full,
                counts(of_estimate(each.full)),
                *(audited_measure(card, each) for _ in audited),
            )
            for each in card.rounds
        )
        + round_rows(card),
        note=f"{first_seed(card)}Of all attacks the defense answered, those that pass as they are "
        f"included. {proof_words(card)} What nobody proved (V4) is never counted."
        f"{AUDIT_NOTE if audited else ''}",
    )


def arms_table(card: AdaptiveCard) -> Table:
    """Return what each arm reached within the budget."""
    rows = [
        row("static", card.rounds[0].full, "0"),
        *(row(each.arm, each.at_budget, count_text(card.budget)) for each in card.arms),
    ]
    rows += arm_rows(card)
    if card.gradient is not None:
        rows.append(row("gradient (A3)", card.gradient.full, count_text(card.budget)))
    if card.extrapolated is not None and card.extrapolated.value is not None:
        rows.append(
            row(
                "blind, extrapolated",
                card.extrapolated,
                count_text(card.extrapolated_at),
                tone=Tone.MUTED,
            )
        )
    return Table(
        id=f"adaptive-arms-{slug(card.name)}",
        title=f"{card.name}: control arms",
        columns=columns("Arm", "ASR", "Search tries"),
        rows=tuple(rows),
        note=f"{first_seed(card)}Adaptive: rounds 2 to {5 if card.attacker else 4}, without the "
        "fixed list. Blind: operators drawn at random, learning nothing. Null: the same text sent "
        "again, so what it gains is chance in the defense. Gradient: swaps where the loss is "
        "steepest, for a defense whose inside is known. Extrapolated: Beta-binomial fit, blind arm "
        "only.",
    )


def curves_chart(card: AdaptiveCard) -> LineChart:
    """Draw the success of the arms over the tries."""
    last = card.arms[0].points[-1][0]
    return LineChart(
        id=f"adaptive-curves-{slug(card.name)}",
        title=f"{card.name}: attacks through by search tries",
        x_axis="Share of the budget spent",
        y_axis="ASR",
        lines=tuple(_arm_line(card, each) for each in card.arms),
        x_unit=Unit.SHARE,
        y_unit=Unit.SHARE,
        summary=f"Success of the adaptive, blind and null arms over {count_text(last)} tries"
        f"{' as means over seeds with their intervals' if card.seeds else ''}.",
    )


def _arm_line(card: AdaptiveCard, arm: ArmCurve) -> Line:
    if banded := seed_line(card, arm.arm):
        return banded
    last = card.arms[0].points[-1][0]
    points = ((k / last, share) for k, share in arm.points)
    return Line(label=arm.arm, points=((0.0, card.rounds[0].full.value or 0.0), *points))


def transfers_table(cards: tuple[AdaptiveCard, ...]) -> Table | None:
    """Return what won against one defense and was replayed on another, or None."""
    rows = tuple(
        row(name(each.source), name(card.name), each.passed)
        for card in cards
        for each in card.transfers
    )
    if not rows:
        return None
    return Table(
        id="adaptive-transfer",
        title="What won against one defense, replayed once on another",
        columns=columns("Won against", "Replayed on", "Passed", texts=("Replayed on",)),
        rows=rows,
        note="Of attacks that the other defense blocked as they are.",
    )


def proof_words(card: AdaptiveCard) -> str:
    """Say what the two columns of tiers hold."""
    has_judge = card.attacker is not None and card.attacker.has_judge
    judged = ", and what was judged the same request (V3)" if has_judge else ""
    return (
        "Strict: the variant provably holds the same text. All proved tiers: bounded typing "
        f"errors and listed synonyms too{judged}."
    )


def holding_sentence(card: AdaptiveCard) -> str:
    """Say what was broken, under which conditions; never more than that."""
    return " ".join(holding_sentences(card))


def holding_sentences(card: AdaptiveCard) -> tuple[str, ...]:
    """Say what was broken, and what getting through amounts to, a sentence each."""
    last = card.rounds[-1].full
    mean = headline(card)
    fell = last.successes if mean is None else mean.value
    means_something = fell or (last.trials and card.target is not None)
    return (_held(card), *(meaning_sentences(card) if means_something else ()))


def _held(card: AdaptiveCard) -> str:
    last = card.rounds[-1].full
    under = (
        f"{card.settings.get('battery', '')}, budget {count_text(card.budget)}, access "
        f"{ACCESS[bool(card.findings.get('has_scores'))][:2]}, knowledge "
        f"{KNOWLEDGE[card.shares_memory][:2]}"
    )
    mean = headline(card)
    share = measure_text(of_estimate(last) if mean is None else of_mean(mean))
    fell, high = (last.successes, last.high) if mean is None else (mean.value, mean.high)
    over = "" if mean is None else f" at any of {mean.seeds} seeds"
    if not last.trials:
        return f"{card.name}: undefined under {under}: no attack was answered."
    if not fell:
        bound = f"; the true share may be up to {percent_text(high)}" if high else ""
        return f"{card.name} was not broken{over} under {under}{bound}."
    over = "" if mean is None else f" on average over {mean.seeds} seeds"
    return (
        f"{card.name}: {share} of {count_text(last.trials)} attacks got through{over} under "
        f"{under}; {percent_text(card.rounds[0].full.value)} did as they are"
        f"{audited_words(card)}."
    )


def gain_sentence(card: AdaptiveCard) -> str:
    """Say what learning added to drawing at random, at equal tries.

    That drawing at random did better is said only where the whole interval lies below zero.
    """
    told = [(k, of_difference(gain)) for k, gain in card.gains]
    over = ""
    if card.seeds is not None and headline(card) is not None:
        told = [(k, of_mean(gain, Unit.POINTS)) for k, gain in card.seeds.gains]
        over = f", mean of {card.seeds.seeds} seeds"
    gains = "; ".join(f"{measure_text(gain)} at {count_text(k)}" for k, gain in told)
    below = [count_text(k) for k, gain in told if gain.high is not None and gain.high < 0]
    behind = f". Drawing at random did better at {', '.join(below)}" if below else ""
    return f"{card.name}: adaptive minus blind at equal tries{over}: {gains}{behind}"


def area_sentence(card: AdaptiveCard) -> str:
    """Say how large the area under the curve of success is, and what may be missing in it."""
    areas = (card.area.adaptive, card.area.blind)
    area, blind = (measure_text(of_ratio(each, Unit.NUMBER)) for each in areas)
    text = (
        f"{card.name}: area under ASR@k on log k up to {count_text(card.budget)}, of "
        f"{count_text(card.area.adaptive.trials)} attacks: {area} adaptive, {blind} blind "
        "(0: nothing got through, 1: everything at once)"
    )
    if card.area.given_up:
        text += (
            f"; {count_text(card.area.given_up)} held attacks had fewer tries than the budget, so "
            "it may be too low"
        )
    return text


def pairs_table(pairs: Sequence[AdaptivePair]) -> Table | None:
    """Return every two defenses side by side, or None with fewer than two."""
    if not pairs:
        return None
    return Table(
        id="adaptive-pairs",
        title="Defenses under the same attacker, attack by attack",
        columns=columns(
            *("First", "Second", "Attacks", "Area", "p area", "Fallen", "p fallen"),
            texts=("Second",),
            meanings={
                "Area": "first minus second; above 0 the first falls sooner",
                "Fallen": "by the last round, first minus second",
            },
        ),
        rows=tuple(
            row(
                name(pair.first),
                name(pair.second),
                pair.attacks,
                of_difference(pair.area, Unit.NUMBER),
                figure(pair.area_adjusted, Unit.P_VALUE),
                pair.outcome,
                figure(pair.outcome_adjusted, Unit.P_VALUE),
            )
            for pair in pairs
        ),
        note="Over attacks that both answered. Area: under ASR@k on log k; its p is that of a "
        "permutation test over groups. Fallen: McNemar's test, or its form for groups. Each "
        "column of p is adjusted by Holm over the pairs.",
    )


def audited_measure(card: AdaptiveCard, each: RoundRate) -> FigureCell:
    """Return what is shown of a round beside the rate of all proved tiers."""
    found = None if card.audit is None else card.audit.of(each.name)
    return of_estimate(each.full) if found is None else of_ratio(found.full)


def audit_sentence(card: AdaptiveCard) -> str:
    """Say what people found, and what that leaves of the rate; empty without a sheet."""
    audit = card.audit
    if audit is None:
        return ""
    if not audit.drawn:
        return f"{card.name}: nothing rests on a judgement any more, so the audit tells nothing"
    last = audit.rounds[-1]
    return (
        f"{card.name}: people call {rate_text(audit.valid)} of the audited bypasses the same "
        f"request ({count_text(audit.drawn)} drawn of {count_text(audit.resting)} that rest on a "
        f"judgement or a table{_open_words(audit)}); so the audited rate at the end is "
        f"{measure_text(of_ratio(last.full))}"
    )


def audited_words(card: AdaptiveCard) -> str:
    """Say what an audit leaves of the last rate, for the end of a sentence; empty without one."""
    if card.audit is None or not card.audit.rounds:
        return ""
    return f"; {measure_text(of_ratio(card.audit.rounds[-1].full))} as far as people confirm it"


def _open_words(audit: AuditCard) -> str:
    """Name what is not answered, and how far it could move the share."""
    if not audit.unsure + audit.blank or audit.least is None or audit.most is None:
        return ""
    return (
        f"; {count_text(audit.unsure)} unsure and {count_text(audit.blank)} blank count in no "
        f"rate: with them the share lies between {percent_text(audit.least)} and "
        f"{percent_text(audit.most)}"
    )


def resting_sentence(card: AdaptiveCard) -> str:
    """Say how many bypasses rest on a judgement that nobody audited; empty without any."""
    if card.audit is not None or not card.resting:
        return ""
    return (
        f"{card.name}: {count_text(card.resting)} of the attacks that got through rest on a "
        "judgement or a table (V3, V3-table) that nobody audited; to audit them: "
        "guardmark audit RUN --what bypasses"
    )
