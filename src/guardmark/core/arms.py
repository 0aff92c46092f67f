"""Arms without one of their guards: what each guard of an arm is worth beside the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.place import Place

_MOST_GUARDS: Final = 8
"""Guards of an arm up to which each is left out once: more would cost more than the arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWithout:
    """An arm without one of its guards.

    Attributes:
        name: What its records are called.
        of: The arm whose guard is left out.
        guard: The guard that is left out, at every place where it stands.
        guards: The guards that stay, by place.
    """

    name: str
    of: str
    guard: str
    guards: Mapping[Place, tuple[str, ...]]


def leave_one_out(arms: Mapping[str, Mapping[Place, tuple[str, ...]]]) -> list[ArmWithout]:
    """Return each arm of several guards without one of them, unless that is an arm already."""
    arms_without = []
    for name, guards in arms.items():
        every = dict.fromkeys(guard for names in guards.values() for guard in names)
        if not 1 < len(every) <= _MOST_GUARDS:
            continue
        for guard in every:
            rest = without_guard(guards, guard)
            label = f"{name}-without-{guard}"
            if rest not in list(arms.values()) and label not in arms:
                arms_without.append(ArmWithout(name=label, of=name, guard=guard, guards=rest))
    return arms_without


def without_guard(
    guards: Mapping[Place, tuple[str, ...]], guard: str
) -> dict[Place, tuple[str, ...]]:
    """Return guards by place without one of them."""
    rest = {}
    for place, names in guards.items():
        kept = tuple(name for name in names if name != guard)
        if kept:
            rest[place] = kept
    return rest
