"""The fixed battery, and the lock that says what it consisted of."""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.attacks.catalogue import operators, parse_chain
from guardmark.attacks.tables import listed_texts
from guardmark.canon.steps import CANON_VERSION, tables_digest
from guardmark.core.errors import IncomparableRuns
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from guardmark.attacks.contract import Operator, OperatorChain

BATTERY_VERSION = "guardmark-attack-3"
"""The fixed list that is used unless an older one is asked for; the figure to quote names it."""

_BATTERIES = "batteries.toml"

NOT_TRIED = (
    "several turns, splitting over tool results, other languages, free paraphrase, pictures, "
    "sound, gradients, and whatever a person or a model would think of"
)
"""What the fixed list leaves out: a defense that holds under it may fall to these."""

SHOWN_DIFFERENCES = 3

AttackerLock = tuple[tuple[str, str], ...]
"""What a lock says of an attacker model: names and values; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What a measurement's lock says beside the battery.

    Attributes:
        battery: Version of the battery.
        attacker: What is locked of an attacker model.
        shares_memory: Whether attacks share what worked.
        seeds: How many seeds the search is repeated with.
        own: Own operators, each with a hash of its source.
    """

    battery: str = BATTERY_VERSION
    attacker: AttackerLock = ()
    shares_memory: bool = True
    seeds: int = 1
    own: tuple[tuple[str, str], ...] = ()

    @property
    def memory(self) -> str:
        """What attacks share, in a word."""
        if self.shares_memory:
            return "shared"
        return "none"


_USUAL = Lock()


@cache
def battery(version: str = BATTERY_VERSION) -> tuple[OperatorChain, ...]:
    """Return the battery: the chains that every blocked attack is tried with, in order."""
    return tuple(map(parse_chain, listed_texts(version, table=_BATTERIES)))


@cache
def lock_text(lock: Lock = _USUAL) -> str:
    """Return what the battery consisted of, as canonical JSON with a final line feed."""
    content: dict[str, object] = {
        "battery": {
            "version": lock.battery,
            "chains": [chain.key for chain in battery(lock.battery)],
        },
        "canon": {"version": CANON_VERSION, "tables": tables_digest()},
        "operators": {operator.key: _operator_content(operator) for operator in operators()},
        "search": {"memory": lock.memory},
        "unicode": unicodedata.unidata_version,
    }
    if lock.attacker:
        content["attacker"] = dict(lock.attacker)
    if lock.seeds > 1:
        content["seeds"] = lock.seeds
    if lock.own:
        content["own operators"] = dict(lock.own)
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _operator_content(operator: Operator) -> dict[str, object]:
    """Return what an operator consists of: another value may make other variants."""
    tables = ""
    if operator.table_digest is not None:
        tables = operator.table_digest()
    return {
        "family": operator.family,
        "tier": operator.tier.value,
        "parameters": {param.name: list(param.values) for param in operator.parameters},
        "tables": tables,
    }


def lock_digest(lock: Lock = _USUAL) -> str:
    """Return the SHA-256 of the lock, in hex; it is printed in the report."""
    return sha256(lock_text(lock).encode()).hexdigest()


def lock_differences(text: str, lock: Lock = _USUAL) -> tuple[str, ...]:
    """Say in what another lock differs from this installation's."""
    if text == lock_text(lock):
        return ()
    try:
        theirs = json.loads(text)
    except ValueError:
        theirs = None
    if not isinstance(theirs, dict):
        return ("it is not a battery lock",)
    if bool(theirs.get("attacker")) is not bool(lock.attacker):
        return ("an attacker model on one side only",)
    ours = _leaves(json.loads(lock_text(lock)))
    other = _leaves(theirs)
    paths = sorted(ours.keys() | other.keys())
    return tuple(path for path in paths if ours.get(path) != other.get(path))


def _leaves(tree: object, path: str = "") -> dict[str, object]:
    """Flatten a tree of objects to paths and values."""
    if not isinstance(tree, dict) or not tree:
        return {path: tree}
    leaves = {}
    for name, branch in tree.items():
        below = str(name)
        if path:
            below = f"{path}/{name}"
        leaves.update(_leaves(branch, below))
    return leaves


def require_lock(text: str, lock: Lock = _USUAL) -> None:
    """Refuse to mix tries of two batteries."""
    differences = lock_differences(text, lock)
    if not differences:
        return
    if differences == ("seeds",):
        before = json.loads(text).get("seeds", 1)
        raise IncomparableRuns(
            f"The tries were made with seeds: {before}, not {lock.seeds}.\n"
            f"Next: --seeds {before}, or measure in a new run."
        )
    shown = ", ".join(differences[:SHOWN_DIFFERENCES])
    left = len(differences) - SHOWN_DIFFERENCES
    if left > 0:
        shown += f" and {left} more"
    raise IncomparableRuns(
        f"The tries were made with another battery: {shown}.\n"
        "Resume or replay with the version of guardmark (and Python) and the attacker model that "
        "made them, or start a new run."
    )
