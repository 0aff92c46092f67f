"""Apply a chain to a text and prove that the variant still is the attack.

V0: the operator's inverse returns the original. V1: both have the same canonical form. V2: at
most one typo a word, in at most 30 % of the words, none lost, and none so short that a typo often
makes another word of it. V3-table: they differ by
listed changes only. V3 needs a judge, V4 is what nobody proved.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.attacks.contract import (
    OperatorConfig,
    Slot,
    Tier,
    Use,
    Variant,
    VariantStatus,
    weakest,
)
from guardmark.canon.steps import CANON_STEPS, Step, apply_steps, skeleton

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.attacks.contract import OperatorChain


_V0, _V1, _V2, _V3_TABLE, _V4 = Tier.V0, Tier.V1, Tier.V2, Tier.V3_TABLE, Tier.V4
"""By names of our own: looking a member up in its class costs as much as a short check."""

MOST_WORDS_EDITED = 0.3  # largest share of words that a bounded variant may edit
LEAST_MISTYPED: Final = 6  # letters: of five, 2 to 4 typos in a hundred are other common words
LEAST_SHORTENED: Final = 8  # letters, where one is left out: of five, 13 in a hundred, of eight 1
_PLAIN: Final = re.compile(r"[\W_]*[^\W\d_]+(?:['-][^\W\d_]+)*[\W_]*")  # no address, no key=value


def proved_tier(arm: OperatorConfig, original: str, variant: str, use: Use) -> Tier | None:
    """Return the strongest tier that can be proved of a variant."""
    declared = arm.tier
    if declared is _V0 and is_exact(arm, original, variant, use):
        return _V0
    if declared.strict:
        proved, is_proved = _V1, is_canonical(arm, original, variant, use)
    elif declared is _V2:
        proved, is_proved = _V2, is_bounded(original, variant)
    elif declared is _V3_TABLE:
        check = arm.operator.check
        proved, is_proved = _V3_TABLE, check is not None and check(original, variant)
    else:
        proved, is_proved = _V4, True
    if is_proved:
        return proved
    return None


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
    edited = 0
    for word, typed in zip(before, after, strict=True):
        if word == typed:
            continue
        edited += 1
        if not is_typo(word, typed):
            return False
    return edited <= MOST_WORDS_EDITED * len(before)


def is_typo(word: str, typed: str) -> bool:
    """Say whether a word was typed with one typo, and is too long to become another word by it."""
    least = LEAST_MISTYPED
    if len(typed) < len(word):
        least = LEAST_SHORTENED
    is_long = sum(map(str.isalpha, word)) >= least
    return is_long and bool(_PLAIN.fullmatch(word)) and edit_within_one(word, typed)


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


_CODE: Final = re.compile(r"(?<![\w+/=-])[A-Za-z\d+/]{16,}+={0,2}(?![\w=-])")
_CODE_HAS: Final = tuple(map(re.compile, (r"\d", "[a-z]", "[A-Z].*[A-Z]")))


@lru_cache(maxsize=1024)
def protected_spans(text: str, must_keep: tuple[str, ...]) -> tuple[str, ...]:
    """Return what stays letter for letter, longest first: Base64 dies of one other capital, too."""
    kept = set(must_keep)
    for code in _CODE.findall(text):
        if all(part.search(code) for part in _CODE_HAS):
            kept.add(code)
    kept.discard("")
    return tuple(sorted(kept, key=lambda span: (-len(span), span)))


def tier_of(original: str, variant: str, must_keep: tuple[str, ...]) -> Tier | None:
    """Return the tier that rules alone can prove of a text that no operator made."""
    if not keeps(original, variant, must_keep):
        return None
    if not keeps(original, variant, protected_spans(original, ())):
        return Tier.V4
    wanted = skeleton(original)
    if wanted and skeleton(variant) == wanted:
        return Tier.V1
    if is_bounded(original, variant):
        return Tier.V2
    return Tier.V4


DECODERS: Final = (Step.ENCODINGS, Step.TAGS, Step.SELECTORS, Step.DIRECTION)
"""Steps of the canonicaliser that read codes and carriers without being told which it is."""


def recovers(original: str, variant: str) -> bool:
    """Tell whether what a variant hides can be read by a machine that is not told how."""
    wanted = skeleton(original)
    return bool(wanted) and wanted in skeleton(apply_steps(variant, DECODERS))


def derive_seed(seed: int, number: int) -> int:
    """Return the seed of the n-th repetition of a search."""
    if number == 1:
        return seed
    return int.from_bytes(sha256(f"{seed}\0adaptive seed\0{number}".encode()).digest()[:6], "big")


def seed_for(run_seed: int, key: str, sample_id: str, try_index: int) -> bytes:
    """Return the seed of one try."""
    return sha256(f"{run_seed}\0{key}\0{sample_id}\0{try_index}".encode()).digest()


def apply(
    chain: OperatorChain | OperatorConfig,
    text: str,
    *,
    seed: bytes,
    must_keep: tuple[str, ...] = (),
) -> Variant:
    """Rewrite a text and check every step, then what they came to together."""
    if isinstance(chain, OperatorConfig):
        arms: tuple[OperatorConfig, ...] = (chain,)
    else:
        arms = chain.arms
    protected = tuple(span for span in protected_spans(text, must_keep) if span in text)
    current, steps = text, list[_Step]()
    for index, arm in enumerate(arms):
        drawn = seed
        if index:
            drawn = sha256(seed + bytes((index,))).digest()
        use = Use(arm.settings, drawn)
        after, tier, fault = _step(arm, current, use, protected)
        if fault:
            return Variant(status=VariantStatus.REFUSED, text=text, reason=f"{arm.key}: {fault}")
        if after != current:
            steps.append(_Step(arm, use, current, after, tier))
            current = after
    if current == text:
        return Variant(status=VariantStatus.NO_OP, text=text)
    claims = tier = _chain_tier(steps)
    if tier is _V4:
        claims = Tier.V3
    return Variant(
        status=VariantStatus.VARIANT,
        text=current,
        tier=tier,
        claims=claims,
        applied=tuple(step.arm.key for step in steps),
    )


_LETTERS: Final = frozenset(CANON_STEPS) - {Step.PUNCTUATION}
"""Steps that leave words as many as they were."""


class _Step(NamedTuple):
    """One operator that changed a text, and what was proved of that change alone."""

    arm: OperatorConfig
    use: Use
    before: str
    after: str
    tier: Tier


def _chain_tier(steps: list[_Step]) -> Tier:
    """Prove the result against the text that the first step began with, not step by step."""
    loose = [number for number, step in enumerate(steps) if not step.tier.strict]
    if len(steps) == 1:
        return steps[0].tier
    if not loose:
        return _strict_tier(steps)
    last = loose[-1]
    if steps[last + 1 :] and not _strict_tier(steps[last + 1 :]).strict:
        return _V4
    if last == 0:
        return steps[0].tier
    original, changed = steps[0].before, steps[last].after
    tier = weakest(steps[number].tier for number in loose)
    if tier is _V2:
        is_proved = is_bounded(apply_steps(original, _LETTERS), apply_steps(changed, _LETTERS))
    else:
        is_proved = tier is _V3_TABLE and _is_listed(steps, loose, original, changed)
    if is_proved:
        return tier
    return _V4


def _is_listed(steps: list[_Step], loose: list[int], original: str, changed: str) -> bool:
    """Say whether the table of any loose step explains the whole change."""
    for number in loose:
        check = steps[number].arm.operator.check
        if check is not None and check(original, changed):
            return True
    return False


def _strict_tier(steps: list[_Step]) -> Tier:
    """Say whether the inverses, or the declared forms together, lead back to the beginning."""
    if all(step.tier is _V0 for step in steps):
        return _V0
    original, changed, rest = steps[0].before, steps[-1].after, list(steps)
    while rest:
        restored = _restored(rest[-1].arm, changed, rest[-1].use)
        if restored is None:
            break
        changed = restored
        rest.pop()
    for form in (skeleton, *(step.arm.operator.canon for step in rest)):
        if form is not None:
            original, changed = form(original), form(changed)
        if original and original == changed:
            return _V1
    return _V4


def _step(
    arm: OperatorConfig, text: str, use: Use, protected: tuple[str, ...]
) -> tuple[str, Tier, str]:
    """Apply one operator and prove the outcome; the last value says why it cannot be proved."""
    operator = arm.operator
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
    tier = proved_tier(arm, text, after, use)
    if tier is None:
        return after, _V4, f"{arm.tier.value} does not hold for this text"
    # Protected spans may look different where decoding brings them back.
    is_decoded = tier is _V0 or (tier is _V1 and operator.slot is Slot.ENCODING)
    if protected and not (is_decoded or (intact and keeps(text, after, protected))):
        return after, _V4, "a protected span would be altered"
    return after, tier, ""


def _around_spans(arm: OperatorConfig, text: str, use: Use, protected: tuple[str, ...]) -> str:
    """Rewrite what stands between the protected spans, each piece with draws of its own."""
    pieces = _splitter(protected).split(text)
    for index in range(0, len(pieces), 2):  # every other piece is a protected span
        own_use = Use(use.settings, sha256(use.seed + b"|%d" % index).digest())
        pieces[index] = arm.operator.rewrite(pieces[index], own_use)
    return "".join(pieces)


@lru_cache(maxsize=256)
def _splitter(protected: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"({'|'.join(map(re.escape, protected))})")
