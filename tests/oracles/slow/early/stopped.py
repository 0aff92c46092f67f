"""Which defenses a rule ended early, and what may be said of them: every look taken again.

The stored answers alone decide. What `summary.json` says of rules is not asked.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.slow.early.looks import Looks
from tests.oracles.slow.early.rules import BELOW, DIFFERENT, Decided, read_rules
from tests.oracles.slow.early.sequences import (
    betting_limits,
    betting_p_values,
    missed,
    mixture_limits,
    mixture_p_value,
    ruled_out_after,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.slow.defenses.columns import Samples
    from tests.oracles.slow.defenses.recount import Recount
    from tests.oracles.slow.early.looks import Course
    from tests.oracles.slow.early.rules import Rule
    from tests.oracles.slow.source import Source

Json = dict[str, Any]
Limits = tuple[float, float]

BY_GROUP: Final = "betting sequence"
"""The method of a rate whose rows share groups."""


def read_stops(source: Source, samples: Samples, recounts: dict[str, Recount]) -> Stops | None:
    """Take the looks of a run again; None where it had no rule."""
    said = source.manifest.get("settings", {}).get("run", {}).get("stop_when")
    if not said:
        return None
    names = [part["name"] for part in source.manifest["parts"] if part["kind"] == "defense"]
    return Stops(
        Looks(source, samples),
        {name: recounts[name] for name in names if name in recounts},
        rules=read_rules(said, names),
        confidence=float(source.manifest["confidence"]),
    )


class Stops:
    """The rules of a run, decided again."""

    def __init__(
        self,
        looks: Looks,
        recounts: dict[str, Recount],
        *,
        rules: Sequence[Rule],
        confidence: float,
    ) -> None:
        self._looks = looks
        self._recounts = recounts
        self._confidence = confidence
        self._rules = rules
        taken = {name: looks.taken(found) for name, found in recounts.items()}
        self._is_whole = {name: count is None for name, count in taken.items()}
        every = len(looks.ends)
        self._taken = {name: every if count is None else count for name, count in taken.items()}
        known = [rule for rule in rules if recounts.keys() >= {*rule.about}]
        found = [decided for rule in known if (decided := self._decide(rule))]
        # As they came out when the defenses answered one after the other.
        place = {name: at for at, name in enumerate(recounts)}
        found.sort(key=lambda each: (max(place[name] for name in each.rule.about), each.look))
        self.decided = {each.rule: each for each in found}

    def ended(self, name: str) -> list[Decided]:
        """Return what ended a defense before it was asked about everything; nothing if nothing."""
        about = [rule for rule in self._rules if name in rule.about]
        if not about or self._is_whole[name] or not all(rule in self.decided for rule in about):
            return []
        return [decided for rule, decided in self.decided.items() if name in rule.about]

    def watches(self, name: str) -> bool:
        """Tell whether a rule could end a defense."""
        return any(name in rule.about for rule in self._rules)

    def rates(self, name: str) -> Json:
        """Return the rates of a watched defense, as its last rule or look saw them."""
        attacks, benign = (self._rate(name, is_attack=label) for label in (True, False))
        return {
            "attack_success_rate": attacks,
            "true_positive_rate": _mirrored(attacks),
            "false_positive_rate": benign,
            "false_negative_rate": attacks,
        }

    def difference(self, first: str, second: str, *, is_attack: bool) -> Json:
        """Return the first error rate minus the second, from the groups that both had answered."""
        end = self._end(min(map(self._last_look, (first, second))))
        course = self._looks.gaps(
            self._recounts[first], self._recounts[second], is_attack=is_attack
        )
        gaps, sums = course.values(end), course.sums(end)
        said: Json = {
            **dict.fromkeys(("value", "low", "high", "p_value")),
            "confidence": self._confidence,
            "method": "betting sequence on paired differences",
            "test": "paired e-value" if sums else "",
            "pairs": len(gaps),
            "groups": len(sums),
            "first_only": gaps.count(1),
            "second_only": gaps.count(-1),
            "reason": "" if sums else "no pairs",
        }
        if not sums:
            return said
        most = self._looks.largest(is_attack=is_attack)
        halves = [((gap + size) / 2 / most, size / most) for gap, size in sums]
        low, high = sorted(betting_limits(halves, self._confidence))
        p_value = self._p_values(course, [end], is_attack=is_attack)[0]
        value = sum(gaps) / len(gaps)
        return said | {"value": value, "low": 2 * low - 1, "high": 2 * high - 1, "p_value": p_value}

    def _last_look(self, name: str) -> int:
        looks = [decided.look for decided in self.ended(name)]
        return max(looks, default=self._taken[name] - 1)

    def _end(self, look: int) -> int:
        return self._looks.ends[look] if look >= 0 else 0

    def _rate(self, name: str, *, is_attack: bool) -> Json:
        look = self._last_look(name)
        course = self._looks.errors(self._recounts[name], is_attack=is_attack)
        values, sums = course.values(self._end(look)), course.sums(self._end(look))
        is_single = self._looks.largest(is_attack=is_attack) <= 1
        limits: Limits | tuple[None, None] = (None, None)
        if values and is_single:
            limits = self._mixed(course)[look] or limits
        elif values:
            groups = self._shares(course, self._end(look), is_attack=is_attack)
            low, high = sorted(betting_limits(groups, self._confidence))
            limits = low, high
        return {
            **dict.fromkeys(("effective_n", "design_effect", "icc", "group_mean", "groups")),
            "value": sum(values) / len(values) if values else None,
            "low": limits[0],
            "high": limits[1],
            "successes": sum(values),
            "trials": len(values),
            "confidence": self._confidence,
            "few_groups": False,
            "method": "beta mixture sequence",
            **({} if is_single else _by_group(sums)),
        }

    # --- deciding ---------------------------------------------------------------------------

    def _decide(self, rule: Rule) -> Decided | None:
        taken = min(self._taken[name] for name in rule.about)
        if rule.kind == DIFFERENT:
            found = self._differ(rule, self._looks.ends[:taken])
        else:
            found = self._settle(rule)
        if found is None or found[1] >= taken:
            return None
        answer, look = found
        return Decided(rule, answer, look, groups=self._looks.ends[look])

    def _differ(self, rule: Rule, ends: Sequence[int]) -> tuple[str, int] | None:
        one, two = (self._recounts[name] for name in (rule.defense, rule.other))
        course = self._looks.gaps(one, two, is_attack=True)
        p_values = self._p_values(course, ends, is_attack=True)
        is_shown = [p_value <= 1 - self._confidence for p_value in p_values]
        return ("yes", is_shown.index(True)) if True in is_shown else None

    def _p_values(self, course: Course, ends: Sequence[int], *, is_attack: bool) -> list[float]:
        """Return the p of "alike" after each of some numbers of groups."""
        most = self._looks.largest(is_attack=is_attack)
        if most <= 1:
            seen = map(course.values, ends)
            return [mixture_p_value(gaps.count(1), gaps.count(-1)) for gaps in seen]
        gaps = [gap / most for gap, _ in course.sums(max(ends, default=0))]
        p_values = [1.0, *betting_p_values(gaps)]
        return [p_values[len(course.sums(end))] for end in ends]

    def _settle(self, rule: Rule) -> tuple[str, int] | None:
        """Return how a rule about one rate comes out and after which look; None if never."""
        course = self._looks.errors(self._recounts[rule.defense], is_attack=rule.is_attack)
        if self._looks.largest(is_attack=rule.is_attack) <= 1:
            said = [limits and rule.answer(*limits) for limits in self._mixed(course)]
            look = next((look for look, answer in enumerate(said) if answer), None)
            return None if look is None else (said[look] or "", look)
        if rule.kind == BELOW:
            return self._pass(course, rule)
        return self._narrow(course, rule)

    def _shares(self, course: Course, end: int, *, is_attack: bool) -> list[tuple[float, float]]:
        """Return events and size of groups as shares of the largest of the label."""
        most = self._looks.largest(is_attack=is_attack)
        return [(events / most, size / most) for events, size in course.sums(end)]

    def _mixed(self, course: Course) -> list[Limits | None]:
        """Return after each look what none so far has ruled out, where samples stand alone."""
        low, high, found = 0.0, 1.0, list[Limits | None]()
        for end in self._looks.ends:
            values = course.values(end)
            if values:
                one, two = mixture_limits(sum(values), len(values), self._confidence)
                low, high = max(low, one), min(high, two)
            found.append((min(low, high), max(low, high)) if values else None)
        return found

    def _pass(self, course: Course, rule: Rule) -> tuple[str, int] | None:
        """Return on which side of a limit the rate is shown to lie first."""
        end, limit = self._end(len(self._looks.ends) - 1), rule.limit
        groups = self._shares(course, end, is_attack=rule.is_attack)
        above = ruled_out_after(groups, limit, self._confidence)
        below = ruled_out_after(missed(groups), 1 - limit, self._confidence)
        looks = {
            answer: self._looks.look_with(course.group(at))
            for answer, at in (("no", above), ("yes", below))
            if at is not None
        }
        if len(set(looks.values())) < len(looks):
            return None  # one look rules out both sides, and so do all after it
        return min(looks.items(), key=lambda each: each[1], default=None)

    def _narrow(self, course: Course, rule: Rule) -> tuple[str, int] | None:
        """Return the first look after which the limits of a rate lie close enough."""
        half_width = rule.limit
        ends = [end for end in self._looks.ends if course.sums(end)]

        def width(end: int) -> float:
            groups = self._shares(course, end, is_attack=rule.is_attack)
            low, high = betting_limits(groups, self._confidence)
            return high - low

        # Nothing that was ruled out comes back, so the width falls from look to look; below 0
        # past looks rule each other out, and the limits part again.
        at = bisect_left(ends, -2 * half_width, key=lambda end: -width(end))
        if at == len(ends) or width(ends[at]) < -2 * half_width:
            return None
        return "reached", self._looks.ends.index(ends[at])


def _by_group(sums: Sequence[tuple[int, int]]) -> Json:
    return {
        "method": BY_GROUP,
        "groups": len(sums),
        "group_mean": sum(events / size for events, size in sums) / len(sums) if sums else None,
    }


def _mirrored(rate: Json) -> Json:
    """Return the share of attacks blocked from the share that got through."""

    def mirror(share: float | None) -> float | None:
        return None if share is None else 1 - share

    return rate | {
        "value": mirror(rate["value"]),
        "low": mirror(rate["high"]),
        "high": mirror(rate["low"]),
        "group_mean": mirror(rate["group_mean"]),
        "successes": rate["trials"] - rate["successes"],
    }
