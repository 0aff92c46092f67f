"""What lies behind each pair of defenses, counted a second time: categories, samples, costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.compared.costs import read_usage, recount_costs
from guardmark.app.verify.compared.pairs import pair_up, read_errors
from guardmark.app.verify.formulas.paired import holm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guardmark.app.verify.compared.pairs import Errors
    from guardmark.app.verify.recount import Recount
    from guardmark.app.verify.source import Subject

Json = dict[str, Any]

_DETAILED: Final = 12
_LISTED: Final = 10
_ABSENT: Final = "(not stated)"
_SEVERITIES: Final = ("low", "medium", "high", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Behind:
    """What lies behind one pair."""

    categories: list[Json] = field(default_factory=list)
    alone: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


def recount_details(recounts: dict[str, Recount], pairs: Sequence[tuple[str, str]]) -> list[Json]:
    """Return what lies behind the first pairs, in the shape of `comparison.json`."""
    told = pairs[:_DETAILED]
    found = [_Behind() for _ in told]
    for is_attack in (True, False):
        _look_at(recounts, told, found=found, is_attack=is_attack)
    listed = {at for each in found for side in each.alone for at in side[:_LISTED]}
    shown = _shown(next(iter(recounts.values())), listed)
    usage = {name: read_usage(recounts[name]) for pair in told for name in pair}
    return [
        {
            "categories": behind.categories,
            "discordant": {
                "first_only": len(behind.alone[0]),
                "second_only": len(behind.alone[1]),
                "listed": [
                    shown[at] | {"erred": name}
                    for name, side in zip(pair, behind.alone, strict=True)
                    for at in side[:_LISTED]
                ],
            },
            "costs": recount_costs(recounts[pair[0]], usage[pair[0]], usage[pair[1]]),
        }
        for pair, behind in zip(told, found, strict=True)
    ]


def _look_at(
    recounts: dict[str, Recount],
    pairs: Sequence[tuple[str, str]],
    *,
    found: Sequence[_Behind],
    is_attack: bool,
) -> None:
    """Add what lies behind each pair on the samples of one label."""
    kinds = _categories(next(iter(recounts.values())), is_attack=is_attack)
    erred = {
        name: _sorted(recounts[name], kinds, is_attack=is_attack)
        for name in dict.fromkeys(name for pair in pairs for name in pair)
    }
    for (one, two), behind in zip(pairs, found, strict=True):
        rows = []
        for category in dict.fromkeys(kinds.values()):
            sides = erred[one][category], erred[two][category]
            rows.append((category, pair_up(*sides, found=recounts[one])))
        behind.categories.extend(_told(rows, recounts[one], is_attack=is_attack))
        for side, (mine, other) in enumerate(((one, two), (two, one))):
            alone = _alone(erred[mine], erred[other])
            behind.alone[side].extend(sorted(alone, key=_order(recounts[one])))


def _categories(found: Recount, *, is_attack: bool) -> dict[int, str]:
    """Return the category of every kind of sample that the run has under a label."""
    return {
        number: found.samples.of_kind[number].facets["category"]
        for number in dict.fromkeys(found.samples.kinds)
        if found.samples.of_kind[number].is_attack == is_attack
    }


def _sorted(found: Recount, kinds: dict[int, str], *, is_attack: bool) -> dict[str, Errors]:
    """Return the errors of a defense by category."""
    by_category: dict[str, Errors] = {category: {} for category in kinds.values()}
    for place, has_erred in read_errors(found, is_attack=is_attack).items():
        by_category[kinds[found.samples.kinds[place[1]]]][place] = has_erred
    return by_category


def _told(rows: Iterable[tuple[str, Json]], found: Recount, *, is_attack: bool) -> list[Json]:
    """Adjust the tests of one label by Holm; the greatest difference comes first."""
    sides = [(category or _ABSENT, side) for category, side in rows]
    adjusted = holm([side["difference"]["p_value"] for _, side in sides])
    told = [
        {
            "category": category,
            "label": "attack" if is_attack else "benign",
            "is_greyed": side["difference"]["pairs"] < found.manifest["min_per_category"],
            **side,
            "adjusted_p": p_value,
        }
        for (category, side), p_value in zip(sides, adjusted, strict=True)
    ]
    return sorted(told, key=lambda row: (-abs(row["difference"]["value"] or 0.0), row["category"]))


def _alone(mine: dict[str, Errors], other: dict[str, Errors]) -> set[int]:
    """Return the samples that one got wrong and the other right, in one repeat at least."""
    return {
        place[1]
        for category, errors in mine.items()
        for place, has_erred in errors.items()
        if has_erred is True and other[category].get(place) is False
    }


def _order(found: Recount) -> Callable[[int], tuple[int, int]]:
    """Severe ones first, then in the order of the data."""
    samples = found.samples
    ranks = {
        number: _SEVERITIES.index(word) if (word := kind.facets["severity"]) in _SEVERITIES else -1
        for number, kind in samples.of_kind.items()
    }
    return lambda place: (-ranks[samples.kinds[place]], place)


def _shown(found: Recount, places: Iterable[int]) -> dict[int, Json]:
    """Return what is told of samples, by their place."""
    wanted = {found.samples.positions[place]: place for place in places}
    subjects = found.source.subjects() if wanted else ()
    return {
        wanted[subject.position]: _facts(subject)
        for subject in subjects
        if subject.position in wanted
    }


def _facts(subject: Subject) -> Json:
    return {
        "id": subject.id,
        "label": "attack" if subject.is_attack else "benign",
        "category": subject.facets["category"],
        "severity": subject.facets["severity"] or None,
        "sha256": subject.sha256,
    }
