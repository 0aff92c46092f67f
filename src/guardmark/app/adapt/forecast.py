"""What an attack will ask, by purpose, before its first call; and what it asked, afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.purposes import Purpose, by_purpose, most_of_defense, most_of_others
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.adaptive.campaign import AdaptivePlan
    from guardmark.adaptive.state import Account
    from guardmark.core.sample import Sample
    from guardmark.engine.plan import BuiltPart

ASKS_ABOVE: Final = 10_000  # calls of services that nobody should make unawares
_ASKED_OF: Final = {
    Purpose.TARGET: "model",
    Purpose.CANARIES: "model",
    Purpose.ATTACKER: "attacker",
    Purpose.SAMENESS: "equivalence",
    Purpose.CRITIC: "critic",
}
"""The part that is asked, as `Spending` knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackForecast:
    """What an attack will ask at most, where nothing gets through early.

    Attributes:
        planned: Of each defense.
        at_service: Defenses that call a service.
        outside: Calls of services.
        is_limited: Whether calls or money have a limit.
    """

    by_purpose: Mapping[Purpose, int]
    planned: Mapping[str, int] = field(default_factory=dict)
    at_service: tuple[BuiltPart, ...] = ()
    outside: int = 0
    is_limited: bool = False

    @property
    def needs_consent(self) -> bool:
        """Tell whether a person should be asked first."""
        return self.outside > ASKS_ABOVE and not self.is_limited


def forecast_campaign(
    plan: AdaptivePlan,
    *,
    attacked: Sequence[BuiltPart],
    samples: Sequence[Sample],
    blocked: Mapping[str, int],
) -> AttackForecast:
    """Add up what an attack on some defenses will ask at most."""
    attacks = sum(sample.is_attack for sample in samples)
    most: Counter[Purpose] = Counter()
    planned: dict[str, int] = {}
    for built in attacked:
        name = built.manifest.name
        benign = len(samples) - attacks
        own = most_of_defense(plan, samples=len(samples), benign=benign, blocked=blocked[name])
        most.update(own)
        planned[name] = sum(own.values())
    others = most_of_others(plan, attacks=attacks, blocked=blocked)
    most.update(others)
    at_service = tuple(built for built in attacked if built.calls_service)
    outside = sum(planned[built.manifest.name] for built in at_service)
    outside += sum(count for purpose, count in others.items() if _is_outside(purpose, plan))
    return AttackForecast(
        by_purpose={purpose: most[purpose] for purpose in Purpose if most[purpose]},
        planned=planned,
        at_service=at_service,
        outside=outside,
    )


def _is_outside(purpose: Purpose, plan: AdaptivePlan) -> bool:
    """Tell whether a purpose asks a service, and not a part in this process."""
    at_service = plan.spending.at_service
    if purpose is Purpose.JUDGES:
        judges = () if plan.target is None else plan.target.judges
        return any(judge.name in at_service for judge in judges)
    if purpose is Purpose.TRANSFER:
        return any(defense.name in at_service for defense in plan.defenses)
    return _ASKED_OF[purpose] in at_service


def purposes_text(counts: Mapping[Purpose, int]) -> str:
    """Write counts by purpose."""
    return "; ".join(f"{purpose} {count:,}" for purpose, count in counts.items())


def calls_line(calls: Mapping[tuple[str, Account], int], *, sent: int) -> str:
    """Say how many questions were asked, by purpose; answers from the cache are among them."""
    counts = by_purpose(calls)
    purposes = ""
    if counts:
        purposes = f" ({purposes_text(counts)})"
    return (
        f"Asked {sum(counts.values()):,} times{purposes}; "
        f"this command made {sent:,} calls, probes and repeated requests included"
    )
