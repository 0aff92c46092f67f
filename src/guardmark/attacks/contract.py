"""What an operator declares: how it rewrites, how it is undone, what it may claim."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from hashlib import shake_128
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


class LegitUse(StrEnum):
    """How common the look of a variant is in honest traffic: what blocking it would cost."""

    COMMON = "common"
    NICHE = "niche"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One thing about an operator that can be set.

    Attributes:
        name: As written in an arm's key.
        values: The values the operator is tried at; the first is the default.
    """

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """One use of an operator: its settings and where its chance comes from.

    Attributes:
        settings: Parameter names and values.
        seed: 32 bytes; the same seed gives the same draws on every machine and version.
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
        """Return uniform bytes, a prefix of one endless stream that the seed fixes.

        Args:
            count: How many, at least 0.

        Returns:
            The bytes.
        """
        return shake_128(self.seed).digest(count)

    def threshold(self, name: str) -> int:
        """Return a probability as a bound for one drawn byte.

        Args:
            name: A setting in [0, 1].

        Returns:
            The bound: a byte below it is a hit; the probability is kept to 1/256.
        """
        return round(self.number(name) * 256)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """One way of rewriting a text.

    Attributes:
        name: Unique among all operators.
        version: Changes whenever any variant changes.
        family: `F1` to `F13`.
        slot: Where in a chain it may stand.
        tier: The strongest tier it may claim; what a variant gets is proved each time.
        legit_use: How common its look is in honest traffic.
        needs_decoder: Whether a reader has to decode before the words are there.
        seeded: Whether the seed matters.
        local: Whether it rewrites within words, so that protected spans are cut out first.
        parameters: What can be set.
        summary: One line for a person.
        rewrite: Text to variant; the text itself where it has nothing to do.
        restore: Variant to original (V0) or to something canonically equal to it (V1).
            Raises ValueError on what it cannot read.
        canon: The operator's own canonical form, where the general one does not fit.
        wrap: Puts a text into the words around the code, not encoded; None where there are none.
        check: For listed changes (V3-table): whether original and variant differ by the
            list only.
        domain: Texts for which the declared tier is promised; None means every text that
            can be written as UTF-8.
        domain_words: The same for a person.
        table_digest: Returns the SHA-256 of the tables it rests on; None without any.
    """

    name: str
    version: int
    family: str
    slot: Slot
    tier: Tier
    legit_use: LegitUse
    needs_decoder: bool = False
    seeded: bool = False
    local: bool = False
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
        """Say whether the declared tier is promised for a text.

        Args:
            text: The original.

        Returns:
            Whether it lies in the declared domain. Outside it a variant may still be made,
            at the tier that then can be proved, or refused.
        """
        return _is_writable(text) and (self.domain is None or self.domain(text))


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An operator at fixed parameters.

    Attributes:
        operator: Which operator.
        settings: Every parameter with its value, in the operator's order.
        key: Stable name with version and settings, as stored in records.
    """

    operator: Operator
    settings: tuple[tuple[str, Value], ...] = ()
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Put the key together once: a search asks for it at every try."""
        key = self.operator.key
        if self.settings:
            key = f"{key}({','.join(f'{k}={v}' for k, v in self.settings)})"
        object.__setattr__(self, "key", key)

    @property
    def tier(self) -> Tier:
        """The strongest tier a variant may get."""
        return self.operator.tier

    @property
    def family(self) -> str:
        """Family of the operator."""
        return self.operator.family

    @property
    def needs_decoder(self) -> bool:
        """Whether a reader has to decode."""
        return self.operator.needs_decoder


def arm_of(operator: Operator, /, **settings: Value) -> Arm:
    """Fix an operator's parameters; what is not named takes its default.

    Args:
        operator: The operator.
        **settings: Parameter values; a number may be any in the operator's range, a word
            has to be one of the listed values.

    Returns:
        The arm.

    Raises:
        ConfigError: If a parameter is unknown or a value is not allowed.
    """
    known = {parameter.name: parameter for parameter in operator.parameters}
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"The operator {operator.name} has no parameter {name!r}."
                f"{did_you_mean(name, known)} Known: {listed(known)}."
            )
    return Arm(
        operator=operator,
        settings=tuple(
            (name, _checked(operator, parameter, settings.get(name, parameter.values[0])))
            for name, parameter in known.items()
        ),
    )


def _checked(operator: Operator, parameter: Parameter, value: Value) -> Value:
    """Return the value in the parameter's type, or say what would be allowed."""
    if value in parameter.values:
        return parameter.values[parameter.values.index(value)]
    default = parameter.values[0]
    if isinstance(default, float) and isinstance(value, int | float) and 0 < value <= 1:
        return float(value)
    allowed = ", ".join(map(str, parameter.values))
    wider = " (or any other share above 0, up to 1)" if isinstance(default, float) else ""
    raise ConfigError(
        f"{operator.name}: {parameter.name}={value!r} is not allowed. Known: {allowed}{wider}."
    )


class Fate(StrEnum):
    """What came of one application."""

    VARIANT = "variant"
    NO_OP = "no_op"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of applying a chain to a text.

    Attributes:
        fate: A variant, nothing changed, or refused. Only a variant is ever a try.
        text: The variant; the original when there is none.
        tier: What is proved of the variant; None when there is none.
        claims: What its weakest step may claim; above `tier` only where a judge is needed.
        applied: Keys of the arms that changed the text, in order.
        reason: Why it was refused; empty otherwise.
    """

    fate: Fate
    text: str
    tier: Tier | None = None
    claims: Tier | None = None
    applied: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_variant(self) -> bool:
        """Whether there is a variant to try."""
        return self.fate is Fate.VARIANT

    @property
    def needs_judge(self) -> bool:
        """Whether a judge could raise the variant from V4 to V3."""
        return self.tier is Tier.V4 and self.claims is Tier.V3

    def judged(self, *, same: bool) -> Attempt:
        """Return the attempt with a judge's answer on "is it still the same request?".

        Args:
            same: The answer.

        Returns:
            V3 when it is; refused when it is not. An attempt that needs no judge is
            returned as it is.
        """
        if not self.needs_judge:
            return self
        if not same:
            return Attempt(fate=Fate.REFUSED, text=self.text, reason="judged another request")
        return Attempt(
            fate=self.fate,
            text=self.text,
            tier=Tier.V3,
            claims=self.claims,
            applied=self.applied,
        )
