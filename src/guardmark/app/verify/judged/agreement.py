"""Agreement of judges with each other and with people, and its drawn limits, for `verify`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.formulas.drawing import draw_groups, on_request, percentiles, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guardmark.app.verify.source import Source

Json = dict[str, Any]
Sums = tuple[float, ...]

_DRAWS: Final = 2000
_METHOD: Final = "group bootstrap, percentile"
_SEED: Final = 0
"""The reports draw agreement from seed 0, whatever the run's seed is."""


def in_order(source: Source, groups: Iterable[str]) -> list[str]:
    """Return groups in the order in which the data first name them."""
    wanted = set(groups)
    return list(dict.fromkeys(group for group in source.groups() if group in wanted))


def alpha(source: Source, rated: Sequence[tuple[str, Sequence[str]]], confidence: float) -> Json:
    """Return Krippendorff's nominal alpha (2011) with percentile limits over groups."""
    labels = sorted({label for _, told in rated for label in told})
    parts: dict[str, Sums] = {}
    for group, told in rated:
        differing = sum(one != two for one in told for two in told) / (len(told) - 1)
        row = (differing, *(float(told.count(label)) for label in labels))
        parts[group] = _added(parts.get(group), row)
    ordered = [parts[group] for group in in_order(source, parts)]
    total: Sums | None = None
    for row in ordered:
        total = _added(total, row)
    value = None if total is None else _alpha_of(total)
    said: Json = {
        "value": value,
        "low": None,
        "high": None,
        "units": len(rated),
        "ratings": sum(len(told) for _, told in rated),
        "groups": len(ordered),
        "replicates": 0,
        "confidence": confidence,
        "method": _METHOD,
    }
    if value is None:
        return said
    limits = _drawn_limits(ordered, _alpha_of, confidence)
    return said | {name: limits[name] for name in ("low", "high", "replicates")}


def _alpha_of(sums: Sums) -> float | None:
    unlike, *counts = sums
    total = sum(counts)
    room = total**2 - sum(count**2 for count in counts)
    return 1 - (total - 1) * unlike / room if room > 0 else None


def kappa(source: Source, pairs: Sequence[tuple[str, bool, bool]], confidence: float) -> Json:
    """Return Cohen's kappa (1960) with percentile limits over groups."""
    cells: dict[str, Counter[tuple[bool, bool]]] = {}
    for group, one, two in pairs:
        cells.setdefault(group, Counter())[one, two] += 1
    ordered = [_cells(cells[group]) for group in in_order(source, cells)]
    total = _cells(Counter((one, two) for _, one, two in pairs))
    value, trials = _kappa_of(total), len(pairs)
    observed = (total[0] + total[3]) / trials if trials else None
    said: Json = {
        "value": value,
        "observed": observed,
        "pabak": None if observed is None else 2 * observed - 1,
        "trials": trials,
        "groups": len(ordered),
        "confidence": confidence,
        "method": _METHOD,
        **dict.fromkeys(("low", "high", "standard_error")),
    }
    if value is None:
        return said
    limits = _drawn_limits(ordered, _kappa_of, confidence)
    return said | {name: limits[name] for name in ("low", "high", "standard_error")}


def _cells(tally: Counter[tuple[bool, bool]]) -> Sums:
    places = ((True, True), (True, False), (False, True), (False, False))
    return tuple(float(tally[place]) for place in places)


def _kappa_of(cells: Sums) -> float | None:
    both, one, two, neither = cells
    total = sum(cells)
    chance = (both + one) * (both + two) + (two + neither) * (one + neither)
    room = total**2 - chance
    return ((both + neither) * total - chance) / room if room > 0 else None


def _drawn_limits(
    parts: Sequence[Sums], figure: Callable[[Sums], float | None], confidence: float
) -> Json:
    """Return limits and spread of a figure over draws of groups, as far as there are any."""
    nothing: Json = {"low": None, "high": None, "standard_error": None, "replicates": 0}
    if len(parts) < 2:
        return nothing

    def count() -> Json:
        drawn = []
        for weights in draw_groups([range(len(parts))], seed=_SEED, replicates=_DRAWS):
            chosen = [(part, times) for part, times in zip(parts, weights, strict=True) if times]
            columns = range(len(parts[0]))
            drawn.append(figure(tuple(sum(p[at] * times for p, times in chosen) for at in columns)))
        limits = percentiles(drawn, confidence)
        if limits is None:
            return nothing
        low, high = limits
        return {"low": low, "high": high, "standard_error": spread(drawn), "replicates": _DRAWS}

    return on_request(_DRAWS * len(parts), [*nothing], count)


def _added(one: Sums | None, two: Sums) -> Sums:
    return two if one is None else tuple(map(sum, zip(one, two, strict=True)))
