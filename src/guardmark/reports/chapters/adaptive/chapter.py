"""Adaptive rounds: what an attacker does who rewrites and watches."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING

from guardmark.reports.chapters.adaptive.attack_success import (
    area_sentence,
    arms_table,
    audit_sentence,
    curves_chart,
    gain_sentence,
    holding_sentence,
    pairs_table,
    resting_sentence,
    rounds_table,
    transfers_table,
)
from guardmark.reports.chapters.adaptive.attacker_model import attacker_blocks
from guardmark.reports.chapters.adaptive.costs import calls_table, costs_table, effort_sentence
from guardmark.reports.chapters.adaptive.operators import (
    operator_tables,
    standing_sentence,
    wrapper_sentence,
)
from guardmark.reports.chapters.adaptive.repair import repair_blocks, repair_sentence
from guardmark.reports.chapters.adaptive.seeds import seeds_sentence, seeds_table
from guardmark.reports.chapters.adaptive.target_model import (
    effect_blocks,
    gradient_sentence,
    target_blocks,
)
from guardmark.reports.chapters.adaptive.threat_model import flag_lines, left_out_line, threat_card
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    Facts,
    Paragraph,
    Section,
    TextCell,
    Tone,
)
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard, AdaptivePair
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block


def write(analysis: RunAnalysis) -> Section:
    """Write the section on adaptive rounds."""
    taken = [part.name for part in analysis.manifest.parts]
    blocks = [block for card in analysis.adaptive for block in _card(card, taken)]
    more = _across(analysis.adaptive, analysis.adaptive_pairs, analysis.adaptive_left_out)
    return Section(id="adaptive", title="Adaptive rounds", blocks=(*blocks, *more))


def adaptive_document(
    cards: Sequence[AdaptiveCard],
    *,
    pairs: Sequence[AdaptivePair] = (),
    left_out: Mapping[str, str] | None = None,
    taken: Sequence[str] = (),
) -> Document:
    """Tell adaptive rounds alone, a section for each defense that was attacked."""
    sections = [
        Section(id=card.name, title=card.name, blocks=tuple(_card(card, taken))) for card in cards
    ]
    if across := _across(tuple(cards), pairs, left_out or {}):
        sections.append(Section(id="across", title="All together", blocks=tuple(across)))
    return Document(title="Adaptive rounds", subtitle="", sections=tuple(sections))


def _across(
    cards: tuple[AdaptiveCard, ...], pairs: Sequence[AdaptivePair], left_out: Mapping[str, str]
) -> list[Block]:
    """Say what is true of all defenses together."""
    blocks: list[Block] = []
    if left := tuple(starmap(left_out_line, left_out.items())):
        blocks.append(Bullets(lines=left, tone=Tone.WARNING))
    blocks += target_blocks(cards)
    tables = (pairs_table(pairs), transfers_table(cards))
    return [*blocks, *(table for table in tables if table is not None)]


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
    blocks += [
        *effect_blocks(card),
        rounds_table(card),
        arms_table(card),
        Bullets(lines=tuple(lines)),
    ]
    if (seeds := seeds_table(card)) is not None:
        blocks.append(seeds)
    if len(card.arms[0].points) > 1:
        blocks.append(curves_chart(card))
    blocks += attacker_blocks(card)
    blocks += [*operator_tables(card), *repair_blocks(card, taken)]
    blocks += [costs_table(card), calls_table(card)]
    return blocks
