"""What cleaning texts first would change, as a table and as lines of a configuration."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Listing, Row, Table
from guardmark.reports.document.cells import (
    columns,
    counts,
    name,
    of_estimate,
    rate_text,
    row,
    slug,
)
from guardmark.reports.document.wording import measure_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.repairs import RepairCard, RepairFit
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Block


_LONGEST: Final = 80

_WIDTH: Final = 96

_FLOW: Final = 72  # where a list is broken: after the word that passes it

_HEAD: Final = (
    "# Repairs found by guardmark adapt. Add the entries to `defenses:` of the configuration.",
    "# Found on attacks of this run: measure them on others before relying on them.",
)


def repair_sentence(card: AdaptiveCard) -> str:
    """Say which cleaning would have closed most, and what it would cost and let in."""
    best = card.best_repair
    if best is None:
        return f"{card.name}: no cleaning of texts would have closed more than it costs"
    return (
        f"{card.name}: cleaning texts by {best.name} before the defense would {_effect(best)}. "
        f"{_fit_words(card)}"
    )


def _fit_words(card: AdaptiveCard, *, with_counts: bool = False) -> str:
    """Say what the best repair does to texts it was not chosen on."""
    fit = card.repair_fit
    if fit is None:
        return "Counted on the texts it was chosen on"
    if fit.reason:
        return f"Counted on the texts it was chosen on; on others undefined: {fit.reason}"
    closed, lost, opened = (
        _share(each, with_counts=with_counts) for each in (fit.closed, fit.cost, fit.opened)
    )
    return (
        f"On texts it was not chosen on: closes {closed}, blocks {lost}, lets in {opened} "
        "(chosen on one half of the groups, counted on the other, both ways)"
    )


def repair_blocks(card: AdaptiveCard, taken: Sequence[str]) -> list[Block]:
    """Return the table of repairs, and the best one as lines to copy."""
    blocks: list[Block] = [_repairs_table(card)]
    if entry := _repair_entry(card, taken):
        blocks.append(
            Listing(
                id=f"adaptive-repair-lines-{slug(card.name)}",
                title=f"{card.name}: the best repair, to paste into the configuration",
                lines=("defenses:", *entry),
            )
        )
    return blocks


def repair_fragment(cards: Sequence[AdaptiveCard], taken: Sequence[str]) -> str | None:
    """Write the best repair of each defense as a fragment of a configuration."""
    lines = [line for card in cards for line in _repair_entry(card, taken)]
    return "\n".join((*_HEAD, "defenses:", *lines)) + "\n" if lines else None


def _repair_entry(card: AdaptiveCard, taken: Sequence[str]) -> tuple[str, ...]:
    """Write one defense wrapped in its best repair, as it stands below `defenses:`."""
    best = card.best_repair
    if best is None:
        return ()
    from guardmark.canon.steps import CANON_VERSION

    fixed = repaired_name(card.name, taken)
    cleaned = {
        "type": "canonical",
        "of": card.name,
        "steps": list(best.steps),
        "canon": CANON_VERSION,
    }
    lines = [*_remark(f"{card.name}, after cleaning: would {_effect(best, with_counts=True)}.")]
    lines += _remark(f"{_fit_words(card, with_counts=True)}.")
    lines += _yaml({fixed: cleaned})
    if best.opened.successes:
        both = repaired_name(card.name, taken, ending="-with-repair")
        lines += _remark(
            "Asks about the text as it is and about the cleaned one: closes as much and lets none "
            "of these attacks in, for two calls instead of one."
        )
        lines += _yaml({both: {"type": "chain", "of": [card.name, fixed], "rule": "any"}})
    return tuple(f"  {line}" for line in lines)


def repaired_name(defense: str, taken: Sequence[str], *, ending: str = "-repaired") -> str:
    """Return a name for a repaired defense that no other has."""
    wanted = f"{defense[: _LONGEST - len(ending) - 4]}{ending}"
    free, number = wanted, 2
    while free in taken:
        free, number = f"{wanted}-{number}", number + 1
    return free


def _yaml(entry: Mapping[str, Mapping[str, object]]) -> list[str]:
    import yaml  # only a run that was attacked needs it

    said = yaml.safe_dump(entry, sort_keys=False, default_flow_style=None, width=_FLOW)
    return said.splitlines()


def _remark(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False):
        yield f"# {line}"


def _effect(best: RepairCard, *, with_counts: bool = False) -> str:
    closed, lost, opened = (
        _share(each, with_counts=with_counts) for each in (best.closed, best.cost, best.opened)
    )
    return (
        f"close {closed} of the bypasses, block {lost} of the benign texts let through so far, "
        f"and let in {opened} of the attacks blocked so far"
    )


def _share(estimate: Estimate, *, with_counts: bool) -> str:
    return rate_text(estimate) if with_counts else measure_text(of_estimate(estimate))


def _repairs_table(card: AdaptiveCard) -> Table:
    return Table(
        id=f"adaptive-repairs-{slug(card.name)}",
        title=f"{card.name}: what cleaning texts first would change",
        columns=columns(
            "Cleaning", "Bypasses closed", "n", "Benign texts lost", "n", "Attacks let in", "n"
        ),
        rows=(*(_row(each.name, each) for each in card.repairs), *_fit_row(card)),
        note="Closed: of the bypasses found, blocked once cleaned. Lost: of benign texts that "
        "pass, blocked once cleaned. Let in: of attacks blocked as they are, passed once cleaned. "
        "What helps by itself is tried together. Rows are counted on the texts they would be "
        "chosen on; the last one is chosen on one half of the groups and counted on the other, "
        f"both ways{_chosen(card)}.",
        collapsed=True,
    )


def _fit_row(card: AdaptiveCard) -> tuple[Row, ...]:
    fit = card.repair_fit
    return () if fit is None else (_row("best, cross-fitted", fit),)


def _chosen(card: AdaptiveCard) -> str:
    fit = card.repair_fit
    if fit is None or fit.reason:
        return "" if fit is None else f": undefined, {fit.reason}"
    return f" (chosen: {' and '.join(each or 'none' for each in fit.chosen)})"


def _row(label: str, told: RepairCard | RepairFit) -> Row:
    rates = (told.closed, told.cost, told.opened)
    cells = (cell for rate in rates for cell in (of_estimate(rate), counts(of_estimate(rate))))
    return row(name(label), *cells)
