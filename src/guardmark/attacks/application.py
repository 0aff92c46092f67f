"""Apply a chain to a text and prove what came out."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from guardmark.attacks.contract import (
    OperatorConfig,
    Slot,
    Tier,
    Use,
    Variant,
    VariantStatus,
    weakest,
)
from guardmark.attacks.validity import keeps, proved_tier

if TYPE_CHECKING:
    from guardmark.attacks.chain import OperatorChain
    from guardmark.attacks.contract import Operator

_VARIANT, _NO_OP, _V0, _V1, _V4 = (
    VariantStatus.VARIANT,
    VariantStatus.NO_OP,
    Tier.V0,
    Tier.V1,
    Tier.V4,
)
"""By names of our own: looking a member up in its class costs as much as a short check."""

_WHOLE_TEXT = (Tier.V2, Tier.V3_TABLE)
"""Tiers whose rule speaks of the whole text, even where only a span was rewritten."""


def seed_for(run_seed: int, key: str, sample_id: str, try_index: int) -> bytes:
    """Return the seed of one try."""
    return sha256(f"{run_seed}\0{key}\0{sample_id}\0{try_index}".encode()).digest()


def apply(
    chain: OperatorChain | OperatorConfig,
    text: str,
    *,
    seed: bytes,
    must_keep: tuple[str, ...] = (),
    span: tuple[int, int] | None = None,
) -> Variant:
    """Rewrite a text and check every step."""
    arms = (chain,) if isinstance(chain, OperatorConfig) else chain.arms
    start, end = (0, len(text)) if span is None else span
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"the span {start}..{end} does not lie in a text of {len(text)}")
    if span is not None and any(arm.operator.slot > Slot.SURFACE for arm in arms):
        return _refused(text, "only lexical and surface operators work on a span")
    frame = _Frame(text[:start], text[end:], _inside(must_keep, text[start:end]))
    current = text[start:end]
    tiers: list[Tier] = []
    applied: list[str] = []
    for index, arm in enumerate(arms):
        use = Use(arm.settings, seed if index == 0 else sha256(seed + bytes((index,))).digest())
        after, tier, fault = _step(arm, current, use, frame)
        if fault:
            return _refused(text, f"{arm.key}: {fault}")
        if after != current:
            current = after
            tiers.append(tier)
            applied.append(arm.key)
    if current == text[start:end]:
        return Variant(fate=_NO_OP, text=text)
    tier, variant = weakest(tiers), frame.around(current)
    if span is not None and tier is not _V0:
        astride = tuple(protected for protected in must_keep if protected not in frame.protected)
        if not keeps(text, variant, astride):
            return _refused(text, "a protected span would be altered")
    return Variant(
        fate=_VARIANT,
        text=variant,
        tier=tier,
        claims=Tier.V3 if tier is _V4 else tier,
        applied=tuple(applied),
    )


class _Frame(NamedTuple):
    """What stands around the rewritten piece, and what in the piece is protected."""

    before: str
    behind: str
    protected: tuple[str, ...]

    def around(self, piece: str) -> str:
        return f"{self.before}{piece}{self.behind}"


def _inside(must_keep: tuple[str, ...], piece: str) -> tuple[str, ...]:
    """Return the protected spans that lie in a piece, longest first."""
    found = {span for span in must_keep if span and span in piece}
    return tuple(sorted(found, key=lambda span: (-len(span), span)) if len(found) > 1 else found)


def _refused(text: str, reason: str) -> Variant:
    return Variant(fate=VariantStatus.REFUSED, text=text, reason=reason)


def _step(arm: OperatorConfig, text: str, use: Use, frame: _Frame) -> tuple[str, Tier, str]:
    """Apply one operator and prove the outcome; the last value says why it cannot be proved."""
    protected, operator = frame.protected, arm.operator
    intact = not protected or all(span in text for span in protected)
    try:
        if protected and operator.local and intact:
            after = _around_spans(arm, text, use, protected)
        else:
            after = operator.rewrite(text, use)
    except UnicodeEncodeError:
        return text, _V4, "the text holds a lone surrogate"
    if after == text:
        return text, _V0, ""
    if operator.tier in _WHOLE_TEXT:
        tier = proved_tier(arm, frame.around(text), frame.around(after), use)
    else:
        tier = proved_tier(arm, text, after, use)
    if tier is None:
        return after, _V4, f"{arm.tier.value} does not hold for this text"
    if protected and not (_encodes(operator, tier) or (intact and keeps(text, after, protected))):
        return after, _V4, "a protected span would be altered"
    return after, tier, ""


def _encodes(operator: Operator, tier: Tier) -> bool:
    """Say whether protected spans may look different, because decoding brings them back."""
    return tier is _V0 or (tier is _V1 and operator.slot is Slot.ENCODING)


def _around_spans(arm: OperatorConfig, text: str, use: Use, protected: tuple[str, ...]) -> str:
    """Rewrite what stands between the protected spans, each piece with draws of its own."""
    pieces = _splitter(protected).split(text)
    return "".join(
        piece
        if index % 2
        else arm.operator.rewrite(
            piece, Use(use.settings, sha256(use.seed + b"|%d" % index).digest())
        )
        for index, piece in enumerate(pieces)
    )


@lru_cache(maxsize=256)
def _splitter(protected: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"({'|'.join(map(re.escape, protected))})")
