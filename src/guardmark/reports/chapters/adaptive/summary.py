"""An adaptive measurement on one screen: what gets through, how soon, by which trick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.canon.visible import spell_hidden
from guardmark.core.values import dataclass
from guardmark.reports.chapters.adaptive.chapter import FLAGS, sight_text
from guardmark.reports.chapters.adaptive.models import meaning_sentences
from guardmark.reports.document.blocks import Bullets, Document, muted, present, section, warning
from guardmark.reports.document.cells import figure, figure_text, name, table_of
from guardmark.reports.document.wording import count_text, counts_text
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.selection import rate_of_chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.operators import OperatorCard
    from guardmark.reports.document.blocks import Part, Table
    from guardmark.reports.document.cells import Value

_EXCERPT: Final = 160  # characters of an example
_UNPROVED: Final = "V4"
_NOTE: Final = (
    "Of all attacks that the defense answered, those that pass as they are included, by variants "
    "that are proved to ask for the same. Search calls follow a look at the defense and the fixed "
    "list, which learn for it and count for themselves."
)
_NOTE_ON_CASES: Final = (
    "Of all cases that were decided as they are, those in which the injection was done then "
    "included. Each try is a case carried out to its end with a rewritten text in which the agent "
    "still reads the order. Search calls are tries; a look at the arm and the fixed list come "
    "before them, learn for them and count for themselves."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrickExample:
    """An attack as it was blocked, and what of it got through."""

    original: str
    rewritten: str


def adaptive_summary(
    cards: Sequence[AdaptiveCard],
    *,
    examples: Mapping[str, TrickExample],
    calls: str = "",
    left_out: Mapping[str, str] | None = None,
) -> Document:
    """Tell of each defense what got through, the cheapest trick with an example, and a repair."""
    of_all = _meaning_of_all(cards)
    lines: list[str] = []
    for card in cards:
        lines.extend(_lines(card, examples.get(card.name), cards, of_all))
    for sentence in of_all:
        lines.append(sentence.rstrip("."))
    parts: list[Part] = [rates_table(cards), Bullets(lines=tuple(lines))]
    if left_out:
        parts.append(warning(_left_out_words(left_out)))
    if calls:
        parts.append(muted(calls))
    blocks = present(*parts)
    return Document(
        title="What gets through somebody who rewrites and watches",
        subtitle=_subtitle(cards),
        sections=(section("adaptive-summary", "", *blocks),),
    )


def _left_out_words(left_out: Mapping[str, str]) -> Iterator[str]:
    """Say of each defense that is shown no plain input why it was left out."""
    for defense, view in left_out.items():
        yield f"{defense} {sight_text(view)}, so no rewriting reaches it: left out"


def rates_table(cards: Sequence[AdaptiveCard]) -> Table:
    """Return the share that got through as they are, and by numbers of search calls."""
    columns: dict[str, Callable[[AdaptiveCard], Value]] = {
        "Defense": lambda card: name(card.name),
        "As they are": lambda card: card.rounds[0].full,
    }
    for at, (calls, _) in enumerate(cards[0].at_calls):
        title = f"{count_text(calls)} calls"
        if calls == 1:
            title = "1 search call"
        columns[title] = _at(at)
    note = _NOTE
    if cards[0].is_carried_out:
        note = _NOTE_ON_CASES
    return table_of(
        cards,
        columns,
        table_id="adaptive-at-calls",
        title="Attacks let through",
        note=note,
    )


def _at(place: int) -> Callable[[AdaptiveCard], Value]:
    return lambda card: card.at_calls[place][1]


def _subtitle(cards: Sequence[AdaptiveCard]) -> str:
    settings = cards[0].settings
    return (
        f"{settings.get('battery', '')}, {count_text(cards[0].budget)} search calls for each "
        f"attack, seed {settings.get('seed', '')}"
    )


def _meaning_of_all(cards: Sequence[AdaptiveCard]) -> tuple[str, ...]:
    """Return what a pass amounts to where that is the same for each of several defenses."""
    if len(cards) < 2:
        return ()
    meanings = {_meaning(card) for card in cards}
    if len(meanings) == 1:
        return meanings.pop()
    return ()


def _meaning(card: AdaptiveCard) -> tuple[str, ...]:
    if card.rounds[-1].full.successes or card.target is not None:
        return tuple(meaning_sentences(card))
    return ()


def _lines(
    card: AdaptiveCard,
    example: TrickExample | None,
    cards: Sequence[AdaptiveCard],
    of_all: tuple[str, ...],
) -> Iterator[str]:
    """Say what no table does: the cheapest trick, a repair that helps, why nothing was sought."""
    start = ""
    if len(cards) > 1:
        start = f"{card.name}: "
    first, last = card.rounds[0].full, card.rounds[-1].full
    if not first.trials:
        yield f"{start}no attack was answered, so nothing is known"
        return
    blocked = first.trials - first.successes
    if not blocked:
        yield (
            f"{start}all {count_text(first.trials)} attacks get through as they are: there is "
            "nothing to search for"
        )
        return
    if last.successes == first.successes:
        yield (
            f"{start}nothing got {count_text(blocked)} blocked attacks through: neither the fixed "
            "list nor the search"
        )
    listed = card.battery_full
    yield (
        f"{start}the fixed list gets {counts_text(figure(listed))} attacks through, "
        f"{figure_text(listed)}"
    )
    best = cheapest_trick(card)
    if best is not None:
        yield f"{start}cheapest trick: {best.chain}, alone {_trick_rate(card, best)}"
    if example is not None:
        yield f"for example: {_cut(example.original)}  ->  {_cut(example.rewritten)}"
    if not of_all:
        for sentence in _meaning(card):
            yield f"{start}{sentence.rstrip('.')}"
    yield from _cautions(card, start)
    if card.repaired is not None and card.repaired.is_shown_to_help:
        steps = card.repaired.name.replace("+", ", ")
        yield f"{start}a repair helps: ask again about the text cleaned by {steps} (repair.yaml)"


def _cautions(card: AdaptiveCard, start: str) -> Iterator[str]:
    """Say what makes these rates uncertain."""
    for flag in card.flags:
        yield f"{start}{flag}: {FLAGS.get(flag, flag)}"
    if card.missing:
        yield f"{start}{count_text(card.missing)} attacks got no answer; left out"
    if card.unanswered:
        yield f"{start}{count_text(card.unanswered)} tries got no answer; they count in no rate"


def cheapest_trick(card: AdaptiveCard) -> OperatorCard | None:
    """Return the operator that alone gets most through; of equals the one that adds least."""
    successful = [each for each in _tried(card) if each.bypassed.successes]
    return min(successful, key=_by_merit, default=None)


def _by_merit(operator: OperatorCard) -> tuple[float, int, float]:
    """Rank by what gets through, then by the fewest operators, then by the least growth."""
    growth, growth_from_one = operator.expansion.value, 1.0
    if growth is not None:
        growth_from_one = abs(growth - 1.0)
    return -(operator.bypassed.value or 0.0), operator.chain.count("+"), growth_from_one


def _tried(card: AdaptiveCard) -> list[OperatorCard]:
    """Return the operators that were tried on attacks and whose variants are proved."""
    tried = []
    for operator in card.operators:
        if operator.bypassed.value is not None and operator.tier != _UNPROVED:
            tried.append(operator)
    return tried


def _trick_rate(card: AdaptiveCard, best: OperatorCard) -> str:
    """Say what a trick gets through, and what that is worth for having been chosen."""
    tried = _tried(card)
    rate = f"{counts_text(figure(best.bypassed))} of what was blocked"
    chosen = rate_of_chosen(
        [EffectiveCounts.of(each.bypassed) for each in tried],
        at=tried.index(best),
        shares_samples=True,
        confidence=best.bypassed.confidence,
    )
    if chosen is None:
        return rate
    low, high = chosen.rate.low, chosen.rate.high
    if low is None or high is None:
        return rate
    return (
        f"{rate} (allowing for the choice among {count_text(len(tried))}: "
        f"{100 * low:.1f} to {100 * high:.1f} %)"
    )


def _cut(text: str) -> str:
    """Return the beginning of a text on one line, what it hides spelled out, in quotation marks."""
    line = spell_hidden(" ".join(text.replace("\n", " ⏎ ").split()))
    if len(line) > _EXCERPT:
        line = f"{line[: _EXCERPT - 1]}…"
    return f'"{line}"'
