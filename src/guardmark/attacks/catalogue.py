"""Every operator and every configuration of one, by name and in a fixed order."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

from guardmark.attacks.contract import (
    Operator,
    OperatorChain,
    OperatorConfig,
    Slot,
    Tier,
    Value,
    arm_of,
)
from guardmark.attacks.operators import (
    characters,
    conversation,
    direction,
    encodings,
    hidden,
    lexical,
    reformulation,
    structure,
    surface,
    typo,
)
from guardmark.attacks.tables import declared, families
from guardmark.core.errors import ConfigError, UnknownName

_KEY = re.compile(r"(?P<name>\w+)(?:@(?P<version>\d+))?(?:\((?P<settings>[^()]*)\))?")


@cache
def _by_name() -> dict[str, Operator]:
    rules = {
        **surface.RULES,
        **typo.RULES,
        **hidden.RULES,
        **characters.RULES,
        **direction.RULES,
        **encodings.RULES,
        **structure.RULES,
        **lexical.RULES,
        **reformulation.RULES,
        **conversation.RULES,
    }
    return {operator.name: operator for operator in declared(rules)}


def operators() -> tuple[Operator, ...]:
    """Return every operator, in the order of the families."""
    return tuple(_by_name().values())


def operator(name: str) -> Operator:
    """Return an operator by its name."""
    if name not in _by_name():
        raise UnknownName("attack operator", name, _by_name())
    return _by_name()[name]


def family(name: str) -> tuple[Operator, ...]:
    """Return the operators of a family."""
    if name not in families():
        raise UnknownName("attack family", name, families())
    return tuple(known for known in operators() if known.family == name)


def arm(name: str, /, **settings: Value) -> OperatorConfig:
    """Return an operator at given parameters."""
    return arm_of(operator(name), **settings)


@cache
def arms(only: tuple[str, ...] | None = None) -> tuple[OperatorConfig, ...]:
    """Return every operator at every listed value of its parameters."""
    configs = []
    for known in operators():
        if only is not None and known.family not in only:
            continue
        names = [parameter.name for parameter in known.parameters]
        choices = [parameter.values for parameter in known.parameters]
        for values in product(*choices):
            settings = tuple(zip(names, values, strict=True))
            configs.append(OperatorConfig(operator=known, settings=settings))
    return tuple(configs)


_SHORT_PADDING = (0, 128)  # words; of more, a small budget pays more than it learns
_EASY_BUDGET = 64
_NEEDS_JUDGE = "F13"  # family whose variants a judge of sameness must pass: no search has one


@cache
def search_chains(
    budget: int, *, has_material: bool = False, has_turns: bool = False
) -> tuple[OperatorChain, ...]:
    """Return the chains of one arm that a search may draw from."""
    chains = []
    for arm in arms():
        if arm.tier is Tier.V4 or arm.family == _NEEDS_JUDGE:
            continue
        if arm.operator.for_material and not has_material:
            continue
        if arm.operator.slot is Slot.TURNS and not has_turns:
            continue
        if budget <= _EASY_BUDGET and dict(arm.settings).get("words", 0) not in _SHORT_PADDING:
            continue
        chains.append(OperatorChain.of(arm))
    return tuple(chains)


def parse_arm(key: str, extra: tuple[Operator, ...] = ()) -> OperatorConfig:
    """Read an arm as it is written in records and on the command line."""
    parts = _KEY.fullmatch(key.strip())
    if parts is None:
        raise ConfigError(f"{key!r} is not an operator. Write it as name or name(parameter=value).")
    by_name = {own.name: own for own in extra}
    known = by_name.get(parts["name"]) or operator(parts["name"])
    if parts["version"] is not None and int(parts["version"]) != known.version:
        raise ConfigError(
            f"{key!r} is version {parts['version']} of {known.name}; this installation has "
            f"version {known.version}. Their variants differ.\n"
            "Next: use the guardmark that wrote it, or leave the version out."
        )
    settings: dict[str, Value] = {}
    for part in filter(None, (parts["settings"] or "").split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"{part.strip()!r} in {key!r} is not of the form parameter=value.")
        settings[name.strip()] = _value(known, name.strip(), value.strip())
    return arm_of(known, **settings)


def _value(known: Operator, name: str, written: str) -> Value:
    """Read a value in the type of the parameter's default."""
    for parameter in known.parameters:
        if parameter.name != name or isinstance(parameter.values[0], str):
            continue
        try:
            return type(parameter.values[0])(written)
        except ValueError:
            raise ConfigError(f"{known.name}: {name}={written!r} is not a number.") from None
    return written


def parse_chain(key: str, extra: tuple[Operator, ...] = ()) -> OperatorChain:
    """Read a chain as it is written in records and on the command line."""
    return OperatorChain(arms=tuple(parse_arm(part, extra) for part in key.split("+")))


FAMILY_PRIOR = {
    "keyword": ("F12", "F8", "F3", "F4"),
    "pattern": ("F11", "F13"),
    "lexical-statistical": ("F12", "F13", "F11"),
    "intent": ("F9", "F10", "F11", "F14"),
    "format": ("F12", "F13", "F14"),
}
"""Diagnosis to families, best first; F14 is the attacker model, which is no operator."""
