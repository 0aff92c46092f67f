"""Texts by which a defense is examined, and what it is called by those that it blocks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from guardmark.attacks.tables import read_text
from guardmark.canon.steps import canonicalize
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYWORD: Final = "keyword"
PATTERN: Final = "pattern"
STATISTICAL: Final = "lexical-statistical"
INTENT: Final = "intent"
FORMAT: Final = "format"
ALLOW_LIST: Final = "allow-list"
CANONICALISER: Final = "canonicaliser"
NONE: Final = "none"

GAP: Final = "{}"
"""Where a carrier takes up a probe."""


@cache
def carriers(kind: str) -> tuple[str, ...]:
    """Return harmless texts: around a gap `short`, `long` or `foreign`, or whole and `everyday`."""
    texts = []
    for line in read_text("carriers.tsv").splitlines():
        name, text = line.split("\t")
        if name == kind:
            texts.append(text)
    return tuple(texts)


def filled(carrier: str, words: str) -> str:
    """Put words into the gap of a carrier."""
    return carrier.replace(GAP, words, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Harmless text that a defense lets through, how rare that is, and what odd characters do."""

    short: str
    long: str
    vast: str
    is_rare: bool = False
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
    }
    foreign = carriers("foreign")[0]
    if 2 * len(around.long) > len(foreign):  # what drowns in one language does so in another
        texts["foreign"] = filled(foreign, joined)
    if size:
        texts["first"] = f"{joined}\n{around.vast}"
        texts["last"] = f"{around.vast}\n{joined}"
        texts["often"] = "\n".join([text] * (1 + size // len(text)))
    return texts


_FEW_WORDS: Final = 4
_MANY_WORDS: Final = 6


def signs_of(blocked: Mapping[str, bool]) -> dict[str, bool]:
    """Tell what else a defense goes by, from which texts about one attack it blocks."""
    signs = {"case": not blocked["case"]}
    if "foreign" in blocked:
        signs["language"] = blocked["long"] and not blocked["foreign"]
    if "first" in blocked:
        ends = blocked["first"], blocked["last"]
        signs |= {
            "prefix": ends == (True, False),
            "suffix": ends == (False, True),
            "length": not any(ends) and not blocked["often"],
        }
    if "hidden" in blocked:
        signs[CANONICALISER] = blocked["hidden"]
    return signs


def label_of(
    words: list[str], core: list[str], blocked: Mapping[str, bool], *, graded: bool, carried: bool
) -> str:
    """Name the kind from what survives transport, reordering and dilution."""
    is_drowned = not blocked.get("first", True) and not blocked["last"]
    is_most = len(core) >= max(_MANY_WORDS, len(words) // 2) and len(words) >= 2 * _MANY_WORDS
    is_found = blocked["short"] and blocked["long"]
    if is_most and blocked["shuffled"] and is_found and not is_drowned:
        return INTENT
    is_whole = len(core) == 1 or f" {' '.join(core)} " in f" {' '.join(words)} "
    is_sum = carried and not is_whole and blocked["reversed"]
    # A rule finds its match in any company; a sum of small evidence drowns.
    if graded or is_drowned or is_sum:
        return STATISTICAL
    if is_found and len(core) <= _FEW_WORDS and (is_whole or blocked["reversed"]):
        return KEYWORD
    if is_found and len(core) <= _FEW_WORDS:
        return PATTERN
    if blocked["shuffled"]:
        return STATISTICAL
    return PATTERN
