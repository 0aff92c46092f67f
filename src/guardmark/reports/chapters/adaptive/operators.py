"""Operators on attacks, on benign texts and by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import FigureCell, Table, TextCell, Unit
from guardmark.reports.document.cells import columns, counts, figure, name, of_estimate, row, slug
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.operators import OperatorCard
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Cell


_LISTED: Final = 4

_STANDINGS: Final = (
    "Holds: most attacks are blocked with it and most benign texts are not. Blanket block: most of "
    "both are blocked, so the form is blocked and not the attack. Blind: neither. Inverted: benign "
    "texts are blocked and attacks are not. A text that was tried twice counts once. Rows are "
    "exploratory: no correction for their number. "
    "Only this one: attacks that nothing else on the fixed list brought through."
)

_MEANINGS: Final = {
    "holds": " (blocks most attacks, not most benign texts)",
    "blanket block": " (blocks most of both: the form, not the attack)",
    "blind": " (blocks most of neither)",
    "inverted": " (blocks most benign texts, not most attacks)",
    "unknown": " (answers on one side are missing)",
}

_SHAPES: Final = (
    "Wrapper alone: neutral sentences, not encoded, in the words that stand before the code, of "
    "those that pass without them; blocked there means that the wrapper did it. Growth: median "
    "length over that of the original. Decoded: variants whose words the shipped decoders read "
    "without being told the code; it says what cleaning could do. Exploratory."
)

_READ: Final = (
    " Read: canary sentences whose words the target model gave back; see the section on the "
    "target model."
)


def operator_tables(card: AdaptiveCard) -> list[Table]:
    """Return what operators do to a defense, and what they do to a text."""
    return [_against(card), _shapes(card)]


def standing_sentence(card: AdaptiveCard) -> str:
    """Say how operators fare on attacks and on benign texts."""
    standings = [each.standing.value for each in card.operators]
    if not standings:
        return f"{card.name}: no operator was tried on benign texts"
    said = ", ".join(
        f"{count_text(standings.count(name))} {name}{_MEANINGS.get(name, '')}"
        for name in dict.fromkeys(sorted(standings))
    )
    return f"{card.name}: {count_text(len(standings))} operators tried on benign texts too: {said}"


def wrapper_sentence(card: AdaptiveCard) -> str:
    """Say which wrappers are blocked by themselves; empty where none is."""
    blocked = [each for each in card.operators if each.is_blocked_by_wrapper]
    if not blocked:
        return ""
    named = ", ".join(
        f"{each.chain} ({each.wrapper_blocked.successes}/{each.wrapper_blocked.trials})"
        for each in blocked[:_LISTED]
        if each.wrapper_blocked is not None
    )
    more = f" and {count_text(len(blocked) - _LISTED)} more" if len(blocked) > _LISTED else ""
    return (
        f"{card.name}: blocks the wrapper whatever it carries, neutral sentences too: "
        f"{named}{more}; what these operators show is not the attack"
    )


def _against(card: AdaptiveCard) -> Table:
    return Table(
        id=f"adaptive-operators-{slug(card.name)}",
        title=f"{card.name}: operators on attacks and on benign texts",
        columns=columns(
            *(
                "Operators",
                "Tier",
                "Attacks through",
                "Benign blocked",
                "J",
                "Standing",
                "Only this one",
            ),
            texts=("Tier", "Standing"),
            meanings={"J": "block rate on attacks minus on benign texts"},
        ),
        rows=tuple(
            row(
                name(each.chain),
                each.tier,
                each.bypassed,
                each.benign_blocked,
                figure(each.separation, Unit.NUMBER),
                each.standing.value,
                each.unique,
            )
            for each in card.operators
        ),
        note=_STANDINGS,
        collapsed=True,
    )


def _shapes(card: AdaptiveCard) -> Table:
    target = card.target
    titles = ["Wrapper alone", "n", "Growth", "n", "Decoded", "n"]
    return Table(
        id=f"adaptive-shapes-{slug(card.name)}",
        title=f"{card.name}: what operators do to a text, and their wrappers alone",
        columns=columns("Operators", *titles, *(["Read", "n"] if target else [])),
        rows=tuple(row(name(each.chain), *_shape(card, each)) for each in card.operators),
        note=_SHAPES + (_READ if target else ""),
        collapsed=True,
    )


def _shape(card: AdaptiveCard, each: OperatorCard) -> tuple[Cell, ...]:
    growth = each.expansion
    rates = [_rate_cells(each.wrapper_blocked), _rate_cells(each.decoded)]
    if card.target is not None:
        rates.append(_rate_cells(card.target.read_rate(each.chain)))
    first, *others = rates
    grown = FigureCell(
        value=growth.value,
        low=growth.low,
        high=growth.high,
        unit=Unit.NUMBER,
        trials=growth.trials,
        reason=growth.reason,
    )
    middle = (grown, TextCell(text=count_text(growth.trials)))
    return (*first, *middle, *(cell for cells in others for cell in cells))


def _rate_cells(estimate: Estimate | None) -> tuple[Cell, Cell]:
    """A rate and its counts; empty where the question does not arise."""
    if estimate is None:
        return TextCell(text=""), TextCell(text="")
    measure = of_estimate(estimate)
    return measure, counts(measure)
