"""The chapter on attackers who watch the defense."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING

from guardmark.reports.adaptive.audited import (
    NOTE,
    TITLE,
    audit_sentence,
    audited_measure,
    resting_sentence,
)
from guardmark.reports.adaptive.costs import costs_table
from guardmark.reports.adaptive.operators import (
    operator_tables,
    standing_sentence,
    wrapper_sentence,
)
from guardmark.reports.adaptive.pairs import area_sentence, pairs_table
from guardmark.reports.adaptive.repair import repair_blocks, repair_sentence
from guardmark.reports.adaptive.seeds import (
    arm_rows,
    first_seed,
    round_rows,
    seed_line,
    seeds_sentence,
    seeds_table,
)
from guardmark.reports.adaptive.target_words import gradient_sentence
from guardmark.reports.adaptive.words import (
    ROUNDS,
    effort_sentence,
    flag_lines,
    gain_sentence,
    holding_sentence,
    left_out_line,
    proof_words,
    threat_card,
)
from guardmark.reports.chapters.adaptive_attacker import attacker_blocks
from guardmark.reports.chapters.adaptive_target import effect_blocks, target_blocks
from guardmark.reports.document.blocks import (
    Bullets,
    Facts,
    Line,
    LineChart,
    Paragraph,
    Table,
    TextCell,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import columns, counts, name, of_estimate, row, slug
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard, ArmCurve
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block


def card_blocks(analysis: RunAnalysis) -> tuple[Block, ...]:
    """Say what came of each defense that was attacked, and of all of them together."""
    blocks: list[Block] = []
    taken = [part.name for part in analysis.manifest.parts]
    for card in analysis.adaptive:
        blocks += _card(card, taken)
    if left := tuple(starmap(left_out_line, analysis.adaptive_left_out.items())):
        blocks.append(Bullets(lines=left, tone=Tone.WARNING))
    blocks += target_blocks(analysis.adaptive)
    across = (pairs_table(analysis.adaptive_pairs), _transfers(analysis.adaptive))
    return (*blocks, *[table for table in across if table is not None])


def _card(card: AdaptiveCard, taken: Sequence[str]) -> list[Block]:
    lines = [
        *(said for said in (seeds_sentence(card),) if said),
        standing_sentence(card),
        gain_sentence(card),
        area_sentence(card),
        effort_sentence(card),
        repair_sentence(card),
    ]
    if wrapper := wrapper_sentence(card):
        lines.append(wrapper)
    if card.gradient is not None:
        lines.append(gradient_sentence(card.name, card.gradient))
    lines += [line for line in (audit_sentence(card), resting_sentence(card)) if line]
    if card.missing:
        lines.append(f"{card.name}: {count_text(card.missing)} attacks got no answer; left out")
    blocks: list[Block] = [
        Facts(
            title=f"{card.name}: threat model",
            pairs=tuple((label, TextCell(text=text)) for label, text in threat_card(card)),
        ),
        Paragraph(text=holding_sentence(card)),
    ]
    if flags := flag_lines(card):
        blocks.append(Bullets(lines=flags, tone=Tone.WARNING))
    blocks += [*effect_blocks(card), _rounds(card), _arms(card), Bullets(lines=tuple(lines))]
    if (seeds := seeds_table(card)) is not None:
        blocks.append(seeds)
    if len(card.arms[0].points) > 1:
        blocks.append(_curves(card))
    blocks += attacker_blocks(card)
    blocks += [*operator_tables(card), *repair_blocks(card, taken)]
    blocks += [costs_table(card), _ledger(card)]
    return blocks


def _rounds(card: AdaptiveCard) -> Table:
    audited = () if card.audit is None else (TITLE,)
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
        f"{NOTE if audited else ''}",
    )


def _arms(card: AdaptiveCard) -> Table:
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


def _curves(card: AdaptiveCard) -> LineChart:
    last = card.arms[0].points[-1][0]
    return LineChart(
        id=f"adaptive-curves-{slug(card.name)}",
        title=f"{card.name}: attacks through by search tries",
        x_axis="Share of the budget spent",
        y_axis="ASR",
        lines=tuple(_line(card, each) for each in card.arms),
        x_unit=Unit.SHARE,
        y_unit=Unit.SHARE,
        summary=f"Success of the adaptive, blind and null arms over {count_text(last)} tries"
        f"{' as means over seeds with their intervals' if card.seeds else ''}.",
    )


def _line(card: AdaptiveCard, arm: ArmCurve) -> Line:
    if banded := seed_line(card, arm.arm):
        return banded
    last = card.arms[0].points[-1][0]
    points = ((k / last, share) for k, share in arm.points)
    return Line(label=arm.arm, points=((0.0, card.rounds[0].full.value or 0.0), *points))


def _ledger(card: AdaptiveCard) -> Table:
    return Table(
        id=f"adaptive-calls-{slug(card.name)}",
        title=f"{card.name}: calls by account",
        columns=columns("Arm and account", "Calls"),
        rows=tuple(row(f"{arm}: {account}", calls) for (arm, account), calls in card.calls.items()),
        note="The attacker pays for baseline, diagnosis, battery, search and confirm; twin, "
        "wrapper, repair, transfer and reworded benign texts are the evaluator's.",
        collapsed=True,
    )


def _transfers(cards: tuple[AdaptiveCard, ...]) -> Table | None:
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
