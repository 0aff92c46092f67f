"""Own operators: functions from text to text that join the attacker's."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from guardmark.attacks.catalogue import operators
from guardmark.attacks.contract import (
    OWN_FAMILY,
    LegitUse,
    Operator,
    OperatorChain,
    OperatorConfig,
    Slot,
    Tier,
    Use,
)
from guardmark.canon.steps import skeleton
from guardmark.core.errors import ConfigError
from guardmark.defenses.function import load_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from guardmark.core.protocols import Attack


def own_operators(
    attacks: Sequence[Attack | Callable[[str], str]],
) -> tuple[Operator, ...]:
    """Make an operator of each own rewriting; a name that guardmark has gets `own_` before it."""
    made: dict[str, Operator] = {}
    taken = {each.name for each in operators()}
    for attack in attacks:
        operator = _operator(attack)
        if operator.name in taken:
            operator = replace(operator, name=f"own_{operator.name}")
        if operator.name in made:
            raise ConfigError(
                f"Two own operators are called {operator.name!r}.\nNext: rename one of them."
            )
        made[operator.name] = operator
    return tuple(made.values())


def load_operators(targets: Iterable[str], folder: Path) -> tuple[Operator, ...]:
    """Load own operators as a configuration names them: `my_ops.py:polite`."""
    loaded: list[Any] = [load_target(target, folder=folder) for target in targets]
    return own_operators(loaded)


def chains_of(made: Iterable[Operator]) -> tuple[OperatorChain, ...]:
    """Return a chain of each operator alone."""
    return tuple(OperatorChain.of(OperatorConfig(operator=each)) for each in made)


def _operator(attack: Any) -> Operator:
    """Describe an own rewriting as an operator.

    A variant counts where it still holds the original, word for word, or where the object's own
    `keeps(original, variant)` says that it asks for the same. No other is proved.
    """
    name = re.sub(r"\W+", "_", str(getattr(attack, "name", "") or getattr(attack, "__name__", "")))
    if not name.strip("_"):
        raise ConfigError("An own operator has no name.\nNext: give it an attribute `name`.")
    method = getattr(attack, "apply", None)
    keeps = getattr(attack, "keeps", None)

    def rewrite(text: str, use: Use) -> str:
        made = method(text, seed=use.seed) if callable(method) else attack(text)
        if not isinstance(made, str):
            raise ConfigError(
                f"The operator {name} returned {type(made).__name__}, not a text.\n"
                "Next: return the rewritten text; the same text where there is nothing to rewrite."
            )
        return made

    def is_kept(original: str, variant: str) -> bool:
        if callable(keeps):
            return bool(keeps(original, variant))
        wanted = skeleton(original)
        return bool(wanted) and wanted in skeleton(variant)

    digest = sha256(_source_of(attack).encode()).hexdigest()
    return Operator(
        name=name,
        family=OWN_FAMILY,
        slot=Slot.LEXICAL,
        tier=Tier.V3_TABLE,
        legit_use=LegitUse.COMMON,
        seeded=callable(method),
        summary=(inspect.getdoc(attack) or "An operator of one's own.").splitlines()[0],
        rewrite=rewrite,
        check=is_kept,
        table_digest=lambda: digest,
    )


def _source_of(attack: Any) -> str:
    described = attack if inspect.isroutine(attack) else type(attack)
    try:
        return inspect.getsource(described)
    except (OSError, TypeError):
        return f"{described!r}"
