"""Chains of defenses from stored decisions: rates, times and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.chapters.comparison import draw_plane, pair_sentence, pairs_table, weak_among
from guardmark.reports.document.blocks import Document, Unit, section
from guardmark.reports.document.cells import figure, name, table_of, with_counts
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.compare.chains import ChainRanking


def chains_document(ranking: ChainRanking) -> Document:
    """Tell which chains none beats, and how they stand to the best defense by itself."""
    rates = [(card.name, card.rates) for card in ranking.cards]
    costs = (
        "" if x.cost is None else f"{1000 * x.cost:,.4g} (n = {x.priced:,})" for x in ranking.cards
    )
    table = table_of(
        list(zip(ranking.cards, costs, strict=True)),
        {
            "Chain": lambda row: name(row[0].name),
            "ASR|of attacks": lambda row: with_counts(row[0].rates.attack_success_rate),
            "FPR|of benign": lambda row: with_counts(row[0].rates.false_positive_rate),
            "p95: of benign samples": lambda row: figure(row[0].p95_ms, Unit.MILLISECONDS),
            "Cost: of 1,000 benign samples": lambda row: row[1],
        },
        table_id="chains",
        texts=("Cost",),
    )
    shares = table_of(
        [(each, "attacks" if each.is_attack else "benign") for each in ranking.shares],
        {
            "Chain": lambda row: name(row[0].chain),
            "Member": lambda row: name(row[0].member),
            "Of": lambda row: row[1],
            "Alone: settled by no other member|of": lambda row: with_counts(row[0].alone),
            "Shapley": lambda row: row[0].shapley,
        },
        table_id="shares",
        texts=(
            "Member",
            "Of",
        ),
        title="What each member adds",
        note=(
            "A member settles a sample by blocking it in a chain of any, by allowing it "
            "in one of all. What it settles alone would change sides if it were left "
            "out. Shapley value: members that settle the same sample share it in equal "
            "parts, so those of a chain add up to what it settles. Over samples that "
            "every member decided, of the half where nothing was chosen."
        ),
    )
    pairs = ranking.comparison.pairs if ranking.comparison else ()
    confidence = 100 * ranking.confidence
    method = (
        "No call was made. A chain asks its members, the fastest first, until one "
        "settles it: any blocks when one of them does, all when each of them does; "
        "failures settle nothing. Chains were chosen on "
        f"{count_text(ranking.chosen_on)} samples, one half of the groups: none is as "
        "good in all of ASR, FPR, p95 and cost (as far as all are known) and better "
        f"in one. Everything here stands on the {count_text(ranking.measured_on)} samples "
        f"of the other half, where nothing was chosen, so each {confidence:.0f} % "
        "interval holds as if its chain were the only one. The lowest balanced error "
        "of the first half stands first."
    )
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
