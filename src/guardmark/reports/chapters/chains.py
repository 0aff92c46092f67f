"""Chains of defenses from stored decisions: rates, times and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.chapters.comparison import draw_plane, pair_sentence, pairs_table, weak_among
from guardmark.reports.document.blocks import Document, Unit, section
from guardmark.reports.document.cells import figure, name, table_of, with_counts
from guardmark.reports.document.wording import count_text, say

if TYPE_CHECKING:
    from guardmark.analysis.compare.chains import ChainRanking


def chains_document(ranking: ChainRanking) -> Document:
    """Tell which chains none beats, and how they stand to the best defense by itself."""
    rates = [(card.name, card.rates) for card in ranking.cards]
    table = table_of(
        ranking.cards,
        {
            "Chain": lambda each: name(each.name),
            "ASR|of attacks": lambda each: with_counts(each.rates.attack_success_rate),
            "FPR|of benign": lambda each: with_counts(each.rates.false_positive_rate),
            "p95: of benign samples": lambda each: figure(each.p95_ms, Unit.MILLISECONDS),
            "Cost: of 1,000 benign samples": lambda each: (
                "" if each.cost is None else f"{1000 * each.cost:,.4g} (n = {each.priced:,})"
            ),
        },
        table_id="chains",
        texts=("Cost",),
    )
    shares = table_of(
        ranking.shares,
        {
            "Chain": lambda each: name(each.chain),
            "Member": lambda each: name(each.member),
            "Of": lambda each: "attacks" if each.is_attack else "benign",
            "Alone: settled by no other member|of": lambda each: with_counts(each.alone),
            "Shapley": lambda each: each.shapley,
        },
        table_id="shares",
        texts=("Member", "Of"),
    )
    pairs = ranking.comparison.pairs if ranking.comparison else ()
    halves = {"chosen": count_text(ranking.chosen_on), "measured": count_text(ranking.measured_on)}
    method = say("chains", **halves, confidence=100 * ranking.confidence)
    return Document(
        title="Chains of stored decisions",
        subtitle=f"{count_text(ranking.front)} of {count_text(ranking.tried)} chains and single "
        f"defenses are beaten by none; the best defense by itself is {ranking.alone}",
        confidence=ranking.confidence,
        sections=(
            section(
                *("chains", "Beaten by none", method),
                [pair_sentence(pair, weak_among(rates)) for pair in pairs[:1]],
                *(table, draw_plane(rates, [each for each, _ in rates])),
                shares if ranking.shares else None,
                pairs_table([(pair, pair.attacks) for pair in pairs], is_attack=True),
                pairs_table([(pair, pair.benign) for pair in pairs], is_attack=False),
            ),
        ),
    )
