"""Tables beside the modules, read once and when first asked for, and operators built from them."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guardmark.attacks.contract import Use

TEXTS = "operators/texts.toml"
OPERATORS = "operators/operators.toml"


@cache
def read_text(name: str) -> str:
    """Return the contents of a table."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """Return a table in TOML; do not change it."""
    return tomllib.loads(read_text(name))


def digest_of(*names: str) -> str:
    """Return the SHA-256 over some tables beside the operators, in hex."""
    tables = [read_text(f"operators/{name}") for name in names]
    return sha256("\0".join(tables).encode()).hexdigest()


def listed_texts(key: str, *, table: str = TEXTS) -> tuple[str, ...]:
    """Return a list of texts."""
    return tuple(read_table(table)[key])


def listed_pairs(key: str, *, table: str = TEXTS) -> dict[str, str]:
    """Return a list of pairs of texts."""
    return dict(read_table(table)[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRules:
    """What an operator does: how it rewrites, and how that is undone or proved.

    Attributes:
        rewrite: Rewrites a text.
        restore: The inverse, for a variant and the same use; it raises `ValueError` where there is
            none.
        canon: The form in which original and variant are equal, where it is not the usual one.
        wrap: Puts a text behind what the operator puts before its own.
        check: Tells whether a table explains the change from one text to the other.
        domain: Tells whether the operator is proved for a text.
        table_digest: Hash of the tables behind it.
    """

    rewrite: Callable[[str, Use], str]
    restore: Callable[[str, Use], str] | None = None
    canon: Callable[[str], str] | None = None
    wrap: Callable[[str, Use], str] | None = None
    check: Callable[[str, str], bool] | None = None
    domain: Callable[[str], bool] | None = None
    table_digest: Callable[[], str] | None = None


@cache
def families() -> dict[str, str]:
    """Return each family with what it is called, in order."""
    return {name: family["title"] for name, family in read_table(OPERATORS).items()}


def declared(rules: Mapping[str, OperatorRules]) -> tuple[Operator, ...]:
    """Join what each operator declares with what it does; nothing may be left over on one side."""
    operators = []
    undeclared = set(rules)
    for family, about in read_table(OPERATORS).items():
        common = dict(about)
        del common["title"]
        for name, own in common.pop("operators").items():
            operators.append(_operator(family, name, {**common, **own}, rules[name]))
            undeclared.discard(name)
    if undeclared:
        raise ValueError(f"{OPERATORS} does not declare {', '.join(sorted(undeclared))}.")
    return tuple(operators)


def _operator(family: str, name: str, written: dict[str, Any], rules: OperatorRules) -> Operator:
    """Build an operator from its entry in the table and its rules."""
    parameters = []
    for key, values in written.pop("parameters", {}).items():
        parameters.append(Parameter(name=key, values=tuple(values)))
    title = written.pop("title", "")
    return Operator(
        name=name,
        family=family,
        summary=written.pop("summary").replace("{title}", title),
        slot=Slot[written.pop("slot").upper()],
        tier=Tier(written.pop("tier")),
        legit_use=LegitUse(written.pop("legit_use")),
        parameters=tuple(parameters),
        **written,  # any other key is refused by the operator
        **{field.name: getattr(rules, field.name) for field in fields(rules)},
    )
