"""Three attackers of a page each, which the search must not lose to."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from tests.planted.defenses import Rule

from guardmark.attacks.application import apply, keeps, tier_of
from guardmark.attacks.catalogue import arm, arms
from guardmark.attacks.contract import OperatorChain, Tier
from guardmark.attacks.operators.lexical import synonyms
from guardmark.core.sample import Sample

NEVER = 10**9
"""Calls to the first bypass of an attack that held."""


def bandit(rule: Rule, attacks: list[Sample], *, budget: int, seed: int = 0) -> list[int]:
    """Sample operators by what they did so far (Thompson); return calls to each first bypass."""
    draw = random.Random(seed)
    chains = [OperatorChain.of(a) for a in arms() if a.tier.in_full and a.family != "F13"]
    record = {chain.key: [1.0, 1.0] for chain in chains}
    firsts = []
    for sample in attacks:
        first, calls, tried = NEVER, 0, set[str]()
        while calls < budget and first == NEVER and len(tried) < len(chains):
            left = [chain for chain in chains if chain.key not in tried]
            chain = max(left, key=lambda each: draw.betavariate(*record[each.key]))
            tried.add(chain.key)
            text = sample.prompt.text
            made = apply(chain, text, seed=draw.randbytes(8), must_keep=sample.must_keep)
            if made.is_variant and made.tier is not None and made.tier.in_full:
                calls += 1
                passed = not rule(made.text)[0]
                record[chain.key][0 if passed else 1] += 1
                first = calls if passed else NEVER
        firsts.append(first)
    return firsts


def best_of_n(rule: Rule, attacks: list[Sample], *, budget: int, seed: int = 0) -> list[int]:
    """Draw random capitals and typos anew for each try (best-of-N); return calls to each bypass."""
    draw, chain, firsts = random.Random(seed), OperatorChain.of(arm("bon_mix")), []
    for sample in attacks:
        first, calls, seen = NEVER, 0, {sample.prompt.text}
        for _ in range(4 * budget):
            made = apply(
                chain, sample.prompt.text, seed=draw.randbytes(8), must_keep=sample.must_keep
            )
            if calls == budget or first < NEVER:
                break
            if made.is_variant and made.text not in seen:
                seen.add(made.text)
                calls += 1
                first = NEVER if rule(made.text)[0] else calls
        firsts.append(first)
    return firsts


_WORD = re.compile(r"[A-Za-z]+")


def greedy(rule: Rule, sample: Sample, *, budget: int) -> tuple[int, int]:
    """Follow the score word by word; return calls to the first bypass, and calls in all."""
    text, calls = sample.prompt.text, 0
    blocked, best = rule(text)
    assert blocked
    assert best is not None

    def ask(candidate: str) -> tuple[bool, float]:
        nonlocal calls
        calls += 1
        is_blocked, score = rule(candidate)
        return is_blocked, 1.0 if score is None else score

    spans = [found.span() for found in _WORD.finditer(text) if len(found[0]) > 3]
    spans = spans[:: max(1, len(spans) // max(1, budget // 4))]
    drops = [(ask(text[:start] + text[end:])[1], start) for start, end in spans]
    words = [m for m in _WORD.finditer(text) if m.start() in {start for _, start in drops}]
    order = sorted(words, key=lambda m: min(drop for drop, start in drops if start == m.start()))
    shift: dict[int, int] = {}
    for word in order:
        start = word.start() + sum(more for place, more in shift.items() if place < word.start())
        for other in _others(word[0]):
            if calls >= budget:
                return NEVER, calls
            candidate = text[:start] + other + text[start + len(word[0]) :]
            if not keeps(sample.prompt.text, candidate, sample.must_keep):
                continue
            is_blocked, score = ask(candidate)
            if not is_blocked and _is_proved(sample.prompt.text, candidate):
                return calls, calls
            if score < best:
                best, text, shift[word.start()] = score, candidate, len(other) - len(word[0])
                break
    return NEVER, calls


def _others(word: str) -> list[str]:
    """Return listed words for a word, and the word with one edit."""
    middle = len(word) // 2
    listed = synonyms().get(word.lower(), ())[:2]
    swapped = word[:middle] + word[middle + 1 : middle + 2] + word[middle : middle + 1]
    return [*listed, swapped + word[middle + 2 :], word[:middle] + word[middle + 1 :]]


def _is_proved(original: str, variant: str) -> bool:
    """Say whether each word is the same, a listed one, or (in 30 % of all words) one edit away."""
    table: Callable[[str], tuple[str, ...]] = lambda word: synonyms().get(word.lower(), ())  # noqa: E731
    before, after = original.split(), variant.split()
    if len(before) != len(after):
        return False
    left = [
        a if b.lower().strip(".,!?") in table(a.strip(".,!?")) else b
        for a, b in zip(before, after, strict=True)
    ]
    return tier_of(original, " ".join(left), ()) not in {None, Tier.V4}
