"""The random numbers behind every bootstrap, made a second time in plain integers.

A run's seed fixes each draw. So a limit that was drawn is checked to its last digits like any
other figure, not within the chance of a second, independent drawing: the same permuted
congruential generator (O'Neill 2014, PCG-XSL-RR 128/64), seeded as numpy seeds it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD: Final = 0xFFFFFFFF
_LONG: Final = (1 << 64) - 1
_STATE: Final = (1 << 128) - 1
_MULTIPLIER: Final = 0x2360ED051FC65DA44385DF649FCCF645
_POOL: Final = 4
_FEW: Final = 30.0
"""Up to so many expected successes are walked up to; more are found by rejection."""


class Generator:
    """The stream of numbers that a seed stands for."""

    def __init__(self, seed: int) -> None:
        words = _Pool(seed).words(8)
        longs = [words[at] | words[at + 1] << 32 for at in range(0, 8, 2)]
        self._step = ((longs[2] << 64 | longs[3]) << 1 | 1) & _STATE
        self._state = (self._step + (longs[0] << 64 | longs[1])) & _STATE
        self._state = (self._state * _MULTIPLIER + self._step) & _STATE
        self._half: int | None = None

    def long(self) -> int:
        """Return the next 64 bits."""
        self._state = state = (self._state * _MULTIPLIER + self._step) & _STATE
        folded, turn = (state >> 64) ^ (state & _LONG), state >> 122
        return (folded >> turn | folded << (64 - turn)) & _LONG

    def share(self) -> float:
        """Return the next number in [0, 1)."""
        return (self.long() >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        """Return the next whole number from 0 to count - 1, without bias (Lemire 2019)."""
        if count == 1:
            return 0
        product = self._word() * count
        if product & _WORD < count:
            least = (1 << 32) % count
            while product & _WORD < least:
                product = self._word() * count
        return product >> 32

    def _word(self) -> int:
        """Return 32 bits: the lower half of a long number, then the upper."""
        if self._half is not None:
            word, self._half = self._half, None
            return word
        whole = self.long()
        self._half = whole >> 32
        return whole & _WORD

    def binomial(self, trials: int, chance: float) -> int:
        """Return how many of some trials succeed."""
        if trials == 0 or chance == 0:
            return 0
        if chance > 0.5:
            return trials - self._fewer(trials, 1.0 - chance)
        return self._fewer(trials, chance)

    def multinomial(self, trials: int, chances: list[float]) -> list[int]:
        """Return how often each of several kinds comes up."""
        return next(self.multinomials(trials, chances, times=1))

    def multinomials(self, trials: int, chances: list[float], *, times: int) -> Iterator[list[int]]:
        """Yield many such draws; what all of them share is worked out once."""
        steps, rest = list[tuple[float, float, float]](), 1.0
        for chance in chances[:-1]:
            # Rounding may carry the share of what is left a hair past 1.
            share = chance / rest
            steps.append((share, 1.0 - share, math.log1p(-share) if share < 1 else -math.inf))
            rest -= chance
        for _ in range(times):
            counts, left = [0] * len(chances), trials
            for place, (share, other, log_other) in enumerate(steps):
                if 0.0 < share <= 0.5 and share * left <= _FEW:
                    drawn = self._walk(left, share, other, math.exp(left * log_other))
                else:
                    drawn = self.binomial(left, share)
                counts[place] = drawn
                left -= drawn
                if left <= 0:
                    break
            else:
                counts[-1] = left
            yield counts

    def _fewer(self, trials: int, chance: float) -> int:
        if chance * trials > _FEW:
            return self._by_rejection(_Shape(trials, chance))
        return self._walk(trials, chance, 1.0 - chance, math.exp(trials * math.log1p(-chance)))

    def _walk(self, trials: int, chance: float, other: float, nothing: float) -> int:
        """Walk up the distribution until the number drawn is used up."""
        # As `share`, without its two calls: most of the time goes here.
        self._state = state = (self._state * _MULTIPLIER + self._step) & _STATE
        folded, turn = (state >> 64) ^ (state & _LONG), state >> 122
        drawn = (((folded >> turn | folded << (64 - turn)) & _LONG) >> 11) * 2.0**-53
        found, weight = 0, nothing
        while drawn > weight:
            found += 1
            # The bound lies ten standard deviations off, so it is worked out where it can matter.
            if (found > 10 or found > trials) and found > _bound(trials, chance, other):
                found, weight, drawn = 0, nothing, self.share()
            else:
                drawn -= weight
                weight = ((trials - found + 1) * chance * weight) / (found * other)
        return found

    def _by_rejection(self, shape: _Shape) -> int:
        """Draw under a triangle, two parallelograms and two tails until one is accepted."""
        while True:
            place, height = self.share() * shape.edges[3], self.share()
            if place <= shape.edges[0]:
                return math.floor(shape.centre - shape.edges[0] * height + place)
            found, height = shape.propose(place, height)
            if found is not None and shape.accepts(found, height):
                return found


def _bound(trials: int, chance: float, other: float) -> int:
    mean = trials * chance
    return int(min(trials, mean + 10.0 * math.sqrt(mean * other + 1)))


class _Shape:
    """What the binomial lies under (Kachitvichyanukul & Schmeiser 1988, algorithm BTPE)."""

    def __init__(self, trials: int, chance: float) -> None:
        self.trials, self.chance, self.other = trials, chance, 1.0 - chance
        top = trials * chance + chance
        self.mode = math.floor(top)
        self.spread = trials * chance * self.other
        half = math.floor(2.195 * math.sqrt(self.spread) - 4.6 * self.other) + 0.5
        self.centre = self.mode + 0.5
        self.left, self.right = self.centre - half, self.centre + half
        self.slack = 0.134 + 20.5 / (15.3 + self.mode)
        gap = (top - self.left) / (top - self.left * chance)
        self.left_rate = gap * (1.0 + gap / 2.0)
        gap = (self.right - top) / (self.right * self.other)
        self.right_rate = gap * (1.0 + gap / 2.0)
        second = half * (1.0 + 2.0 * self.slack)
        third = second + self.slack / self.left_rate
        self.edges = (half, second, third, third + self.slack / self.right_rate)

    def propose(self, place: float, height: float) -> tuple[int | None, float]:
        """Return a candidate and its height under the cover; None where it cannot be."""
        half, second, third, _ = self.edges
        if place <= second:
            x = self.left + (place - half) / self.slack
            height = height * self.slack + 1.0 - abs(self.mode - x + 0.5) / half
            return (None if height > 1.0 else math.floor(x)), height
        if height == 0.0:
            return None, height
        if place <= third:
            found = math.floor(self.left + math.log(height) / self.left_rate)
            height *= (place - second) * self.left_rate
            return (found if found >= 0 else None), height
        found = math.floor(self.right - math.log(height) / self.right_rate)
        height *= (place - third) * self.right_rate
        return (found if found <= self.trials else None), height

    def accepts(self, found: int, height: float) -> bool:
        """Tell whether the height lies under the binomial itself, relative to its mode."""
        away = abs(found - self.mode)
        if away <= 20 or away >= self.spread / 2.0 - 1:
            return height <= self._ratio(found)
        squeeze = (away / self.spread) * (
            (away * (away / 3.0 + 0.625) + 0.16666666666666666) / self.spread + 0.5
        )
        middle = -away * away / (2 * self.spread)
        level = math.log(height)
        if level < middle - squeeze:
            return True
        return level <= middle + squeeze and level <= self._log_ratio(found)

    def _ratio(self, found: int) -> float:
        odds = self.chance / self.other
        scaled, ratio = odds * (self.trials + 1), 1.0
        for k in range(self.mode + 1, found + 1):
            ratio *= scaled / k - odds
        for k in range(found + 1, self.mode + 1):
            ratio /= scaled / k - odds
        return ratio

    def _log_ratio(self, found: int) -> float:
        """Return the logarithm of the ratio by Stirling's series."""
        x, f = found + 1.0, self.mode + 1.0
        z, w = self.trials + 1.0 - self.mode, self.trials - found + 1.0
        level = self.centre * math.log(f / x)
        level += (self.trials - self.mode + 0.5) * math.log(z / w)
        level += (found - self.mode) * math.log(w * self.chance / (x * self.other))
        return level + sum(map(_stirling, (f, z, x, w)))


def _stirling(n: float) -> float:
    square = n * n
    series = 99.0 - 140.0 / square
    for term in (132.0, 462.0, 13680.0):
        series = term - series / square
    return series / n / 166320.0


class _Pool:
    """A seed spread over four words, and words drawn from them (O'Neill 2015, seed_seq)."""

    def __init__(self, seed: int) -> None:
        entropy = [seed >> shift & _WORD for shift in range(0, max(1, seed.bit_length()), 32)]
        self._factor = 0x43B0D7E5
        self._pool = [self._hash(entropy[at] if at < len(entropy) else 0) for at in range(_POOL)]
        for source in range(_POOL):
            for target in range(_POOL):
                if source != target:
                    self._mix(target, self._pool[source])
        for word in entropy[_POOL:]:
            for target in range(_POOL):
                self._mix(target, word)

    def _hash(self, word: int) -> int:
        word ^= self._factor
        self._factor = self._factor * 0x931E8875 & _WORD
        word = word * self._factor & _WORD
        return word ^ word >> 16

    def _mix(self, target: int, word: int) -> None:
        mixed = 0xCA01F9DD * self._pool[target] - 0x4973F715 * self._hash(word) & _WORD
        self._pool[target] = mixed ^ mixed >> 16

    def words(self, count: int) -> list[int]:
        """Return the words that seed a generator."""
        factor, found = 0x8B51F9DD, []
        for at in range(count):
            word = self._pool[at % _POOL] ^ factor
            factor = factor * 0x58F38DED & _WORD
            word = word * factor & _WORD
            found.append(word ^ word >> 16)
        return found
