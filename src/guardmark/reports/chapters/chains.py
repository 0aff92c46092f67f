"""Chains of defenses from stored decisions: rates, times and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.chapters.comparison import draw_plane, pair_sentence, pairs_table
from guardmark.reports.chapters.subjects import weak_among
from guardmark.reports.document.blocks import Document, Unit, section
from guardmark.reports.document.cells import figure, name, table_of, with_counts
from guardmark.reports.document.wording import count_text, side_word

if TYPE_CHECKING:
    from guardmark.analysis.compare.chains import ChainCard, ChainRanking
    from guardmark.analysis.compare.comparison import PairedComparison
    from guardmark.reports.document.blocks import Part, Table


def chains_document(ranking: ChainRanking) -> Document:
    """Tell which chains none beats, and how they stand to the best defense by itself."""
    rates = [(card.name, card.rates) for card in ranking.cards]
    pairs: tuple[PairedComparison, ...] = ()
    if ranking.comparison is not None:
        pairs = ranking.comparison.pairs
    subtitle = (
        f"{count_text(ranking.front)} of {count_text(ranking.tried)} chains and single "
        f"defenses are beaten by none; the best defense by itself is {ranking.alone}"
    )
    parts: list[Part] = [_method(ranking)]
    if pairs:
        parts.append([pair_sentence(pairs[0], weak_among(rates))])
    parts += [_chains_table(ranking), draw_plane(rates, [chain for chain, _ in rates])]
    if ranking.shares:
        parts.append(_shares_table(ranking))
    on_attacks = [(pair, pair.attacks) for pair in pairs]
    on_benign = [(pair, pair.benign) for pair in pairs]
    parts.append(pairs_table(on_attacks, is_attack=True))
    parts.append(pairs_table(on_benign, is_attack=False))
    return Document(
        title="Chains of stored decisions",
        subtitle=subtitle,
        confidence=ranking.confidence,
        sections=(section("chains", "Beaten by none", *parts),),
    )


def _chains_table(ranking: ChainRanking) -> Table:
    return table_of(
        ranking.cards,
        {
            "Chain": lambda card: name(card.name),
            "ASR|of attacks": lambda card: with_counts(card.rates.attack_success_rate),
            "FPR|of benign": lambda card: with_counts(card.rates.false_positive_rate),
            "p95: of benign samples": lambda card: figure(card.p95_ms, Unit.MILLISECONDS),
            "Cost: of 1,000 benign samples": _cost_text,
        },
        table_id="chains",
        texts=("Cost",),
    )


def _cost_text(card: ChainCard) -> str:
    """Say what 1,000 benign samples cost, and how many of them have a price."""
    if card.cost is None:
        return ""
    return f"{1000 * card.cost:,.4g} (n = {card.priced:,})"


def _shares_table(ranking: ChainRanking) -> Table:
    return table_of(
        ranking.shares,
        {
            "Chain": lambda share: name(share.chain),
            "Member": lambda share: name(share.member),
            "Of": lambda share: side_word(is_attack=share.is_attack),
            "Alone: settled by no other member|of": lambda share: with_counts(share.alone),
            "Shapley": lambda share: share.shapley,
        },
        table_id="shares",
        texts=("Member", "Of"),
        title="What each member adds",
        note=(
            "A member settles a sample by blocking it in a chain of any, by allowing it "
            "in one of all. What it settles alone would change sides if it were left "
            "out. Shapley value: members that settle the same sample share it in equal "
            "parts, so those of a chain add up to what it settles. Over samples that "
            "every member decided, of the half where nothing was chosen."
        ),
    )


def _method(ranking: ChainRanking) -> str:
    """Say how chains were measured without a call, and on which half of the samples."""
    confidence = 100 * ranking.confidence
    return (
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
