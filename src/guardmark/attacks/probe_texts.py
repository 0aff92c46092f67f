"""Texts by which a defense is examined: pieces of a blocked attack within harmless carriers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from guardmark.attacks.tables import read_text
from guardmark.canon.steps import canonicalize

GAP: Final = "{}"
"""Where a carrier takes up a probe."""


@cache
def carriers(kind: str) -> tuple[str, ...]:
    """Return harmless texts around a gap: `short`, `long`, or in a `foreign` language."""
    rows = (line.split("\t") for line in read_text("carriers.tsv").splitlines())
    return tuple(text for name, text in rows if name == kind)


def filled(carrier: str, words: str) -> str:
    """Put words into the gap of a carrier."""
    return carrier.replace(GAP, words, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Harmless text that a defense lets through, and what is known of odd characters in it."""

    short: str
    long: str
    vast: str
    dislikes_odd: bool = False
    is_gated: bool = False


def probes_of(text: str, core: list[str], around: Surroundings, carrier: str) -> dict[str, str]:
    """Return what is asked of a blocked text, by name; all of it in plain letters."""
    joined, size = " ".join(core), len(around.vast)
    texts = {
        "short": filled(around.short, joined),
        "long": filled(around.long, joined),
        "reversed": filled(carrier, " ".join(reversed(core))),
        "canonical": canonicalize(text),
        "case": text.upper(),
        "foreign": filled(carriers("foreign")[0], joined),
    }
    if size:
        texts["first"] = f"{joined}\n{around.vast}"
        texts["last"] = f"{around.vast}\n{joined}"
        texts["often"] = "\n".join([text] * (1 + size // len(text)))
    return texts
