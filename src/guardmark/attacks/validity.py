"""Checks that a variant still is the attack it was made from.

V0: the operator's inverse returns the original. V1: both have the same canonical form. V2: at
most one edit a word, in at most 30 % of the words, none lost. V3-table: they differ by
listed changes only. V3 needs a judge, V4 is what nobody proved.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from guardmark.attacks.contract import Tier, Use
from guardmark.canon import skeleton

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.attacks.contract import OperatorConfig

_V0, _V1, _V2, _V3_TABLE, _V4 = Tier.V0, Tier.V1, Tier.V2, Tier.V3_TABLE, Tier.V4
"""By names of our own: looking a member up in its class costs as much as a short check."""

MOST_WORDS_EDITED = 0.3
"""Largest share of words that a bounded variant may edit."""


def proved_tier(arm: OperatorConfig, original: str, variant: str, use: Use) -> Tier | None:
    """Return the strongest tier that can be proved of a variant."""
    declared = arm.tier
    if declared is _V0 and is_exact(arm, original, variant, use):
        return _V0
    if declared.strict:
        return _V1 if is_canonical(arm, original, variant, use) else None
    if declared is _V2:
        return _V2 if is_bounded(original, variant) else None
    if declared is _V3_TABLE:
        check = arm.operator.check
        return _V3_TABLE if check is not None and check(original, variant) else None
    return _V4


def is_exact(arm: OperatorConfig, original: str, variant: str, use: Use) -> bool:
    """Say whether the operator's inverse returns the original (V0)."""
    return _restored(arm, variant, use) == original


def _restored(arm: OperatorConfig, variant: str, use: Use) -> str | None:
    restore = arm.operator.restore
    if restore is None:
        return None
    try:
        return restore(variant, use)
    except ValueError:
        return None


def is_canonical(arm: OperatorConfig, original: str, variant: str, use: Use) -> bool:
    """Say whether original and variant have the same canonical form (V1)."""
    canon = arm.operator.canon or skeleton
    wanted = _canonical_original(canon, original)
    if not wanted:
        return False
    if arm.operator.restore is None or arm.tier is _V0:
        return canon(variant) == wanted
    restored = _restored(arm, variant, use)
    return restored is not None and canon(restored) == wanted


@lru_cache(maxsize=1024)
def _canonical_original(canon: Callable[[str], str], original: str) -> str:
    """Remember originals: each is rewritten many times."""
    return canon(original)


def is_bounded(original: str, variant: str) -> bool:
    """Say whether a variant stays within the bounds of V2."""
    before, after = original.casefold().split(), variant.casefold().split()
    if len(before) != len(after):
        return False
    edited = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    if len(edited) > MOST_WORDS_EDITED * len(before):
        return False
    return all(edit_within_one(a, b) for a, b in edited)


def edit_within_one(a: str, b: str) -> bool:
    """Say whether one edit at most leads from one word to the other."""
    if a == b:
        return True
    at = 0  # of the first difference
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        at += 1
    if len(a) != len(b):
        return a[at + 1 :] == b[at:] or a[at:] == b[at + 1 :]
    if a[at + 1 :] == b[at + 1 :]:
        return True
    return a[at : at + 2] == b[at : at + 2][::-1] and a[at + 2 :] == b[at + 2 :]


def keeps(original: str, variant: str, must_keep: tuple[str, ...]) -> bool:
    """Say whether a variant holds every protected span letter for letter."""
    return all(variant.count(span) >= original.count(span) for span in must_keep if span)


def tier_of(original: str, variant: str, must_keep: tuple[str, ...]) -> Tier | None:
    """Return the tier that rules alone can prove of a text that no operator made."""
    if not keeps(original, variant, must_keep):
        return None
    wanted = skeleton(original)
    if wanted and skeleton(variant) == wanted:
        return Tier.V1
    return Tier.V2 if is_bounded(original, variant) else Tier.V4
