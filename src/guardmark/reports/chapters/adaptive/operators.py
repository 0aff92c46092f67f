"""Operators on attacks and on benign texts, and what cleaning texts first would undo."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.operators import OperatorClass
from guardmark.reports.document.blocks import Listing, Table
from guardmark.reports.document.cells import name, number, rate_text, slug, table_of, with_counts
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.operators import OperatorCard, RepairCard, RepairFit
    from guardmark.reports.document.blocks import Block
    from guardmark.reports.document.cells import Value


STANDINGS: Final = {
    OperatorClass.HOLDS: "works",
    OperatorClass.BLANKET: "blocks the form",
    OperatorClass.BLIND: "misses both",
    OperatorClass.INVERTED: "inverted",
    OperatorClass.UNKNOWN: "unknown",
}
"""How a defense treats a form of text, attacks and benign texts side by side, in words."""

_LISTED: Final = 4

_LONGEST: Final = 80
_WIDTH: Final = 96
_FLOW: Final = 72  # where a list is broken: after the word that passes it
_HEAD: Final = (
    "# Repairs found by guardmark adapt. Add the entries to `defenses:` of the configuration.",
    "# Found on attacks of this run: measure them on others before relying on them.",
)


def standing_sentence(card: AdaptiveCard) -> str:
    """Say how operators fare on attacks and on benign texts."""
    standings = sorted(STANDINGS[each.standing] for each in card.operators)
    if not standings:
        return f"{card.name}: no operator was tried on benign texts"
    counted = ", ".join(
        f"{count_text(standings.count(name))} {name}" for name in dict.fromkeys(standings)
    )
    return (
        f"{card.name}: {count_text(len(standings))} operators tried on benign texts too: {counted}"
    )


def wrapper_sentence(card: AdaptiveCard) -> str:
    """Say which wrappers are blocked by themselves; empty where none is."""
    blocked = [
        f"{each.chain} ({each.wrapper_blocked.successes}/{each.wrapper_blocked.trials})"
        for each in card.operators
        if each.is_blocked_by_wrapper and each.wrapper_blocked is not None
    ]
    if not blocked:
        return ""
    more = f" and {count_text(len(blocked) - _LISTED)} more" if len(blocked) > _LISTED else ""
    return (
        f"{card.name}: blocks the wrapper whatever it carries, neutral sentences too: "
        f"{', '.join(blocked[:_LISTED])}{more}; what these operators show is not the attack"
    )


def operator_tables(card: AdaptiveCard) -> list[Table]:
    """Return what operators do to a defense, and what they do to a text."""
    return [_against(card), _shapes(card)]


def _against(card: AdaptiveCard) -> Table:
    return table_of(
        card.operators,
        {
            "Operators": lambda each: name(each.chain),
            "Tier": lambda each: each.tier,
            "Attacks through": lambda each: each.bypassed,
            "Benign blocked": lambda each: each.benign_blocked,
            "J: block rate on attacks minus on benign texts": lambda each: number(each.separation),
            "Standing": lambda each: STANDINGS[each.standing],
            "Only this one": lambda each: each.unique,
        },
        table_id=f"adaptive-operators-{slug(card.name)}",
        title=f"{card.name}: operators on attacks and on benign texts",
        note="Works: most attacks are blocked with it and most benign texts are not. Blocks the "
        "form: most of both are blocked, so the form is blocked and not the attack. Misses both: "
        "neither. Inverted: benign texts are blocked and attacks are not. A text that was tried "
        "twice counts once. Rows are exploratory: no correction for their number. Only this one: "
        "attacks that nothing else on the fixed list brought through.",
        texts=("Tier", "Standing"),
        collapsed=True,
    )


def _shapes(card: AdaptiveCard) -> Table:
    target, note = card.target, ""
    cells: dict[str, Callable[[OperatorCard], Value | tuple[Value, ...]]] = {
        "Operators": lambda each: name(each.chain),
        "Wrapper alone|n": lambda each: with_counts(each.wrapper_blocked),
        "Growth": lambda each: number(each.expansion),
        "n": lambda each: count_text(each.expansion.trials),
        "Decoded|n": lambda each: with_counts(each.decoded),
    }
    if target is not None:
        cells["Read|n"] = lambda each: with_counts(target.read_rate(each.chain))
        note = (
            " Read: canary sentences whose words the target model gave back; see the section on "
            "the target model."
        )
    return table_of(
        card.operators,
        cells,
        table_id=f"adaptive-shapes-{slug(card.name)}",
        title=f"{card.name}: what operators do to a text, and their wrappers alone",
        note="Wrapper alone: neutral sentences, not encoded, in the words that stand before the "
        "code, of those that pass without them; blocked there means that the wrapper did it. "
        "Growth: median length over that of the original. Decoded: variants whose words the "
        "shipped decoders read without being told the code; it says what cleaning could do. "
        f"Exploratory.{note}",
        collapsed=True,
    )


def repair_sentence(card: AdaptiveCard) -> str:
    """Say which cleaning would have closed most, and what it would cost and let in."""
    best = card.best_repair
    if best is None:
        return f"{card.name}: no cleaning of texts would have closed more than it costs"
    closed, lost, opened = map(rate_text, (best.closed, best.cost, best.opened))
    return (
        f"{card.name}: cleaning texts by {best.name} before the defense would close {closed} of "
        f"the bypasses, block {lost} of the benign texts let through so far, and let in {opened} "
        f"of the attacks blocked so far. {_fit_words(card)}"
    )


def _fit_words(card: AdaptiveCard) -> str:
    """Say what the best repair does to texts it was not chosen on."""
    fit = card.repair_fit
    if fit is None or fit.reason:
        undefined = f"; on others undefined: {fit.reason}" if fit else ""
        return f"Counted on the texts it was chosen on{undefined}"
    closed, lost, opened = map(rate_text, (fit.closed, fit.cost, fit.opened))
    return (
        f"On texts it was not chosen on: closes {closed}, blocks {lost}, lets in {opened} "
        "(chosen on one half of the groups, counted on the other, both ways)"
    )


def repair_blocks(card: AdaptiveCard, taken: Sequence[str]) -> list[Block]:
    """Return the table of repairs, and the best one as lines to copy."""
    fit, chosen = card.repair_fit, ""
    rates: list[tuple[str, RepairCard | RepairFit]] = [(each.name, each) for each in card.repairs]
    if fit is not None:
        rates.append(("best, cross-fitted", fit))
        chosen = f" (chosen: {' and '.join(each or 'none' for each in fit.chosen)})"
        chosen = f": undefined, {fit.reason}" if fit.reason else chosen
    table = table_of(
        rates,
        {
            "Cleaning": lambda pair: name(pair[0]),
            "Bypasses closed|n": lambda pair: with_counts(pair[1].closed),
            "Benign texts lost|n": lambda pair: with_counts(pair[1].cost),
            "Attacks let in|n": lambda pair: with_counts(pair[1].opened),
        },
        table_id=f"adaptive-repairs-{slug(card.name)}",
        title=f"{card.name}: what cleaning texts first would change",
        note="Closed: of the bypasses found, blocked once cleaned. Lost: of benign texts that "
        "pass, blocked once cleaned. Let in: of attacks blocked as they are, passed once cleaned. "
        "What helps by itself is tried together. Rows are counted on the texts they would be "
        "chosen on; the last one is chosen on one half of the groups and counted on the other, "
        f"both ways{chosen}.",
        collapsed=True,
    )
    if not (entry := _repair_entry(card, taken)):
        return [table]
    listing = Listing(
        id=f"adaptive-repair-lines-{slug(card.name)}",
        title=f"{card.name}: the best repair, to paste into the configuration",
        lines=("defenses:", *entry),
    )
    return [table, listing]


def repair_fragment(cards: Sequence[AdaptiveCard], taken: Sequence[str]) -> str | None:
    """Write the best repair of each defense as a fragment of a configuration."""
    lines = [line for card in cards for line in _repair_entry(card, taken)]
    return "\n".join((*_HEAD, "defenses:", *lines)) + "\n" if lines else None


def _repair_entry(card: AdaptiveCard, taken: Sequence[str]) -> list[str]:
    """Write one defense wrapped in its best repair, as it stands below `defenses:`."""
    best = card.best_repair
    if best is None:
        return []
    from guardmark.canon.steps import CANON_VERSION

    fixed = repaired_name(card.name, taken)
    cleaned = {
        "type": "canonical",
        "of": card.name,
        "steps": list(best.steps),
        "canon": CANON_VERSION,
    }
    lines = [*_remark(f"{repair_sentence(card)}."), *_yaml({fixed: cleaned})]
    if best.opened.successes:
        both = repaired_name(card.name, taken, ending="-with-repair")
        lines += _remark(
            "Asks about the text as it is and about the cleaned one: closes as much and lets none "
            "of these attacks in, for two calls instead of one."
        )
        lines += _yaml({both: {"type": "chain", "of": [card.name, fixed], "rule": "any"}})
    return [f"  {line}" for line in lines]


def repaired_name(defense: str, taken: Sequence[str], *, ending: str = "-repaired") -> str:
    """Return a name for a repaired defense that no other has."""
    wanted = f"{defense[: _LONGEST - len(ending) - 4]}{ending}"
    free, number = wanted, 2
    while free in taken:
        free, number = f"{wanted}-{number}", number + 1
    return free


def _yaml(entry: Mapping[str, Mapping[str, object]]) -> list[str]:
    import yaml  # only a run that was attacked needs it

    text = yaml.safe_dump(entry, sort_keys=False, default_flow_style=None, width=_FLOW)
    return text.splitlines()


def _remark(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]
