"""What an operator declares, how operators are chained, and the protocols of gradients."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum, StrEnum
from hashlib import shake_128
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from guardmark.core.errors import ConfigError, did_you_mean, listed
from guardmark.core.protocols import Part
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guardmark.core.sample import Sample
    from guardmark.inference.gradients import EmbeddingGradients


Value = str | int | float
"""A parameter's value."""


class Tier(StrEnum):
    """How far it is proved that a variant still is the attack; strongest first."""

    V0 = "V0"
    V1 = "V1"
    V2 = "V2"
    V3_TABLE = "V3-table"
    V3 = "V3"
    V4 = "V4"

    @property
    def strict(self) -> bool:
        """Whether it counts in the strict headline (V0 and V1)."""
        return self in _STRICT

    @property
    def in_full(self) -> bool:
        """Whether it counts in the full headline (all but the unproven V4)."""
        return self is not Tier.V4


_RANKS = {tier: rank for rank, tier in enumerate(Tier)}
_STRICT = (Tier.V0, Tier.V1)


def weakest(tiers: Iterable[Tier]) -> Tier:
    """Return the weakest of some tiers; V0 when there are none."""
    return max(tiers, key=_RANKS.__getitem__, default=Tier.V0)


class Slot(IntEnum):
    """Where in a chain an operator may stand; slots never fall along a chain."""

    LEXICAL = 0
    SURFACE = 1
    CARRIER = 2
    ENCODING = 3
    WRAPPER = 4
    TURNS = 5


class LegitUse(StrEnum):
    """How common the look of a variant is in honest traffic: what blocking it would cost."""

    COMMON = "common"
    NICHE = "niche"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One thing about an operator that can be set.

    Attributes:
        name: What it is called.
        values: The values that a search tries, the default first.
    """

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """One use of an operator: its settings and where its chance comes from.

    Attributes:
        settings: Names and values of the operator's parameters.
        seed: From which all of its chance is drawn.
    """

    settings: tuple[tuple[str, Value], ...]
    seed: bytes

    def number(self, name: str) -> float:
        """Return a numeric setting."""
        return float(self._value(name))

    def count(self, name: str) -> int:
        """Return a setting that is a whole number."""
        return int(self._value(name))

    def word(self, name: str) -> str:
        """Return a setting that is a word."""
        return str(self._value(name))

    def _value(self, name: str) -> Value:
        for key, value in self.settings:
            if key == name:
                return value
        raise KeyError(name)

    def draws(self, count: int) -> bytes:
        """Return uniform bytes, a prefix of one endless stream that the seed fixes."""
        return shake_128(self.seed).digest(count)

    def threshold(self, name: str) -> int:
        """Return a probability as a bound for one drawn byte."""
        return round(self.number(name) * 256)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """One way of rewriting a text.

    Attributes:
        name: What it is called.
        version: Raised when the same use makes another variant.
        family: The family that it belongs to, such as F4.
        slot: Where in a chain it may stand.
        tier: The strongest tier that a variant may get.
        legit_use: How common the look of a variant is in honest traffic.
        needs_decoder: Whether a model must decode a variant before it can act on it.
        seeded: Whether it draws by chance, so that another seed makes another variant.
        local: Whether it rewrites pieces of a text each by itself, so that spans can be left out.
        for_material: Whether it makes sense only in a document or in what a tool returned.
        parameters: What can be set about it.
        summary: What it does, in a sentence.
        rewrite: Rewrites a text.
        restore: The inverse, for a variant and the same use; it raises `ValueError` where there is
            none.
        canon: The form in which original and variant are equal, where it is not the usual one.
        wrap: Puts a text behind what the operator puts before its own.
        check: Tells whether a table explains the change from one text to the other.
        domain: Tells whether the tier is promised for a text; None promises it for all.
        domain_words: The same in words.
        table_digest: Hash of the tables behind it.
    """

    name: str
    version: int = 1
    family: str
    slot: Slot
    tier: Tier
    legit_use: LegitUse
    needs_decoder: bool = False
    seeded: bool = False
    local: bool = False
    for_material: bool = False
    parameters: tuple[Parameter, ...] = ()
    summary: str
    rewrite: Callable[[str, Use], str]
    restore: Callable[[str, Use], str] | None = None
    canon: Callable[[str], str] | None = None
    wrap: Callable[[str, Use], str] | None = None
    check: Callable[[str, str], bool] | None = None
    domain: Callable[[str], bool] | None = None
    domain_words: str = "any text"
    table_digest: Callable[[], str] | None = None

    @property
    def key(self) -> str:
        """Name with version, as stored."""
        return f"{self.name}@{self.version}"

    def promises(self, text: str) -> bool:
        """Say whether the declared tier is promised for a text."""
        return is_writable(text) and (self.domain is None or self.domain(text))

    def facts(self) -> dict[str, object]:
        """Return what is declared, as JSON values."""
        return {
            "name": self.name,
            "version": self.version,
            "family": self.family,
            "slot": self.slot.name.lower(),
            "tier": self.tier.value,
            "legit_use": self.legit_use.value,
            "needs_decoder": self.needs_decoder,
            "seeded": self.seeded,
            "for_material": self.for_material,
            "parameters": {param.name: list(param.values) for param in self.parameters},
            "domain": self.domain_words,
            "summary": self.summary,
        }


def is_writable(text: str) -> bool:
    """Say whether a text has a form in bytes, which half of a surrogate pair has not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """An operator at fixed parameters.

    Attributes:
        operator: The operator.
        settings: Names and values of its parameters, in order.
        key: Name, version and settings, as stored.
    """

    operator: Operator
    settings: tuple[tuple[str, Value], ...] = ()
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Put the key together once: a search asks for it at every try."""
        key = self.operator.key
        if self.settings:
            stated = [f"{name}={value}" for name, value in self.settings]
            key += f"({','.join(stated)})"
        object.__setattr__(self, "key", key)

    @property
    def tier(self) -> Tier:
        """The strongest tier a variant may get."""
        return self.operator.tier

    @property
    def family(self) -> str:
        """Family of the operator."""
        return self.operator.family


def arm_of(operator: Operator, /, **settings: Value) -> OperatorConfig:
    """Fix an operator's parameters; what is not named takes its default."""
    known = {parameter.name: parameter for parameter in operator.parameters}
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"The operator {operator.name} has no parameter {name!r}."
                f"{did_you_mean(name, known)} Known: {listed(known)}."
            )
    chosen = []
    for name, parameter in known.items():
        value = settings.get(name, parameter.values[0])
        chosen.append((name, _checked(operator, parameter, value)))
    return OperatorConfig(operator=operator, settings=tuple(chosen))


def _checked(operator: Operator, parameter: Parameter, value: Value) -> Value:
    """Return the value in the parameter's type, or say what would be allowed."""
    if value in parameter.values:
        return parameter.values[parameter.values.index(value)]
    default = parameter.values[0]
    if isinstance(default, float) and isinstance(value, int | float) and 0 < value <= 1:
        return float(value)
    allowed = ", ".join(map(str, parameter.values))
    if isinstance(default, float):
        allowed += " (or any other share above 0, up to 1)"
    raise ConfigError(
        f"{operator.name}: {parameter.name}={value!r} is not allowed. Known: {allowed}."
    )


class VariantStatus(StrEnum):
    """What came of one application."""

    VARIANT = "variant"
    NO_OP = "no_op"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What came of applying a chain to a text.

    Attributes:
        status: Whether there is a variant.
        text: The variant, or the original where there is none.
        tier: The tier that was proved; None without a variant.
        claims: The tier that it claims: V3 where a judge of sameness could raise it from V4.
        applied: Keys of the operators that changed the text.
        reason: Why a variant was refused, or empty.
    """

    status: VariantStatus
    text: str
    tier: Tier | None = None
    claims: Tier | None = None
    applied: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_variant(self) -> bool:
        """Whether there is a variant to try."""
        return self.status is VariantStatus.VARIANT

    @property
    def needs_judge(self) -> bool:
        """Whether a judge could raise the variant from V4 to V3."""
        return self.tier is Tier.V4 and self.claims is Tier.V3

    def facts(self, original: str) -> dict[str, object]:
        """Return what came of it, as JSON values."""
        return {
            "fate": self.status.value,
            "text": self.text,
            "tier": self.tier,
            "needs_judge": self.needs_judge,
            "applied": list(self.applied),
            "expansion": len(self.text) / max(len(original), 1),
            "reason": self.reason,
        }


OWN_FAMILY = "own"  # of operators that an attacker brings
LONGEST = 3
"""Most operators in a chain."""

HIDDEN = "F10"  # family after which nothing may follow: what is hidden cannot be rewritten any more


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChain:
    """Operators applied one after the other.

    Attributes:
        arms: The operators with their parameters, in the order in which they are applied.
        key: Their keys joined, as stored.
    """

    arms: tuple[OperatorConfig, ...]
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse an order that is not allowed."""
        object.__setattr__(self, "key", " + ".join(arm.key for arm in self.arms))
        fault = fault_of(self.arms)
        if fault:
            raise ConfigError(f"The chain {self.key!r} is not allowed: {fault}.")

    @staticmethod
    def of(*arms: OperatorConfig) -> OperatorChain:
        """Chain some arms."""
        return OperatorChain(arms=arms)

    @property
    def tier(self) -> Tier:
        """The weakest of the declared tiers."""
        return weakest(arm.tier for arm in self.arms)

    @property
    def needs_decoder(self) -> bool:
        """Whether a reader has to decode."""
        return any(arm.operator.needs_decoder for arm in self.arms)

    @property
    def for_material(self) -> bool:
        """Whether it is of no sense but in a document or in what a tool returned."""
        return any(arm.operator.for_material for arm in self.arms)

    @property
    def is_own(self) -> bool:
        """Whether an operator of it comes from the attacker and not from guardmark."""
        return any(arm.family == OWN_FAMILY for arm in self.arms)

    @property
    def families(self) -> tuple[str, ...]:
        """Families in order."""
        return tuple(arm.family for arm in self.arms)

    @property
    def slot(self) -> Slot:
        """Slot of the last arm."""
        return self.arms[-1].operator.slot


def fault_of(arms: Sequence[OperatorConfig]) -> str:
    """Say why arms may not stand in this order."""
    if not 1 <= len(arms) <= LONGEST:
        return f"it has {len(arms)} operators, and 1 to {LONGEST} are possible"
    names = [arm.operator.name for arm in arms]
    if len(set(names)) < len(names):
        return "an operator appears twice"
    encodings = [arm for arm in arms if arm.operator.slot is Slot.ENCODING]
    if len(encodings) > 1:
        return "there are two encodings"
    for before, after in pairwise(arms):
        if before.family == HIDDEN:
            return f"nothing may follow {before.operator.name}, which hides the text"
        if after.operator.slot < before.operator.slot:
            return (
                f"{after.operator.name} ({after.operator.slot.name.lower()}) stands after "
                f"{before.operator.name} ({before.operator.slot.name.lower()})"
            )
    return ""


@runtime_checkable
class GradientDefense(Part, Protocol):
    """A defense in this process whose loss has a gradient."""

    def gradients(self) -> EmbeddingGradients | None:
        """Return access to its gradients, or None where what it scores with has none."""
        ...


@runtime_checkable
class GradientAttack(Part, Protocol):
    """An attack that follows the gradient of a defense; its name carries its version."""

    def propose(self, sample: Sample, access: EmbeddingGradients, *, most: int) -> Iterator[str]:
        """Yield variants of an attack's text, one at a time, as long as none got through.

        Each is checked against `must_keep` and the tiers, and the defense is asked, elsewhere.
        """
        ...
