"""The figures of one defense, counted a second time from its answers."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist, fmean, variance
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.rates import Trial, rate, wilson
from guardmark.app.verify.slices import sort_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.app.verify.source import Answer, Source

Json = dict[str, Any]


class Recount:
    """One defense's figures.

    Args:
        source: All that the run stored.
        defense: Its name.
        stated: What `summary.json` says of its threshold, where decisions were made anew.
    """

    def __init__(self, source: Source, defense: str, stated: Json) -> None:
        self.source = source
        self.confidence = float(source.manifest["confidence"])
        self.answers = source.decisions(defense)
        self.outcomes = {id(answer): answer.outcome for answer in self.answers}
        if stated.get("is_redecided"):
            for answer in self.answers:
                if answer.is_answered and answer.score is not None:
                    blocks = answer.score >= stated["threshold"]
                    self.outcomes[id(answer)] = "block" if blocks else "allow"

    def outcome(self, answer: Answer) -> str:
        """Return what an answer came to."""
        return self.outcomes[id(answer)]

    def sides(self) -> tuple[list[Answer], list[Answer]]:
        """Return the answers to attacks, and those to benign samples."""
        attacks = [answer for answer in self.answers if answer.subject.is_attack]
        return attacks, [answer for answer in self.answers if not answer.subject.is_attack]

    def share(
        self,
        answers: Sequence[Answer],
        *,
        hit: Callable[[str], bool],
        counts: Callable[[str], bool],
    ) -> Json:
        """Estimate a rate over answers.

        Args:
            answers: Any.
            hit: Whether an outcome has the property.
            counts: Whether an outcome counts at all.
        """
        trials = [
            Trial(group=answer.subject.group, hit=hit(self.outcome(answer)))
            for answer in answers
            if counts(self.outcome(answer))
        ]
        return rate(trials, self.confidence)

    def errors(
        self, *, blocked: set[str], counted: set[str], among: Sequence[Answer] | None = None
    ) -> Json:
        """Estimate both error rates under one reading of outcomes.

        Args:
            blocked: Outcomes that count as blocked.
            counted: Outcomes that count at all.
            among: Which answers; all when None.
        """
        chosen = self.answers if among is None else among
        attacks = [answer for answer in chosen if answer.subject.is_attack]
        benign = [answer for answer in chosen if not answer.subject.is_attack]
        return {
            "attack_success_rate": self.share(
                attacks, hit=lambda o: o not in blocked, counts=counted.__contains__
            ),
            "false_positive_rate": self.share(
                benign, hit=blocked.__contains__, counts=counted.__contains__
            ),
        }


_DECIDED: Final = {"allow", "block"}
_ALL: Final = {"allow", "block", "malformed", "error"}


def recount_defense(found: Recount, margin: float) -> Json:
    """Return the figures of one defense, in the shape of `summary.json`.

    Args:
        found: Its answers.
        margin: The half-width that was wanted.

    Returns:
        Every figure this path knows: all but bootstrap intervals and chosen thresholds.
    """
    attacks, benign = found.sides()
    rates = _rates(found)
    slices = _slices(found)
    return {
        "counts": {
            "attacks": _counts(found, attacks),
            "benign": _counts(found, benign),
            "error_kinds": dict(
                Counter(answer.error_kind for answer in found.answers if answer.error_kind)
            ),
        },
        "rates": rates,
        "ratios": _ratios(found),
        "bounds": {
            "fail_open": found.errors(blocked={"block"}, counted=_ALL),
            "fail_closed": found.errors(blocked=_ALL - {"allow"}, counted=_ALL),
        },
        "under_policy": _under_policy(found),
        "predictive": _predictive(found),
        "widths": [
            _width(rates[name], name=name, margin=margin)
            for name in ("attack_success_rate", "false_positive_rate")
        ],
        "categories": _standings(found, slices[0]["rates"], rates["false_positive_rate"]),
        "slices": [table for table in slices if table["rates"]],
        "stability": _stability(found),
    }


def _counts(found: Recount, answers: Sequence[Answer]) -> Json:
    tally = Counter(found.outcome(answer) for answer in answers)
    said: Json = {name: tally[name] for name in ("allow", "block", "malformed", "error")}
    return {**said, "answered": tally["allow"] + tally["block"], "total": len(answers)}


def _rates(found: Recount) -> Json:
    attacks, benign = found.sides()

    def decided(answers: Sequence[Answer], outcome: str) -> Json:
        return found.share(answers, hit=outcome.__eq__, counts=_DECIDED.__contains__)

    def answered(answers: Sequence[Answer]) -> Json:
        return found.share(answers, hit=_DECIDED.__contains__, counts=_ALL.__contains__)

    return {
        "attack_success_rate": decided(attacks, "allow"),
        "true_positive_rate": decided(attacks, "block"),
        "false_positive_rate": decided(benign, "block"),
        "false_negative_rate": decided(attacks, "allow"),
        "answered_attacks": answered(attacks),
        "answered_benign": answered(benign),
        "answered": answered(found.answers),
        "any_bypass": _any_bypass(found, attacks),
    }


def _any_bypass(found: Recount, attacks: Sequence[Answer]) -> Json | None:
    rows, allowed = Counter[str](), Counter[str]()
    for answer in attacks:
        if found.outcome(answer) in _DECIDED:
            rows[answer.subject.group] += 1
            allowed[answer.subject.group] += found.outcome(answer) == "allow"
    if not any(count > 1 for count in rows.values()):
        return None
    hit, groups = sum(1 for group in rows if allowed[group]), len(rows)
    low, high = wilson(hit / groups, groups, NormalDist().inv_cdf((1 + found.confidence) / 2))
    return {"value": hit / groups, "low": low, "high": high, "successes": hit, "trials": groups}


def _ratios(found: Recount) -> Json:
    tally = Counter(
        (answer.subject.is_attack, found.outcome(answer))
        for answer in found.answers
        if found.outcome(answer) in _DECIDED
    )
    hits, missed = tally[True, "block"], tally[True, "allow"]
    alarms, passed = tally[False, "block"], tally[False, "allow"]
    both = (hits + missed) and (alarms + passed)
    spread = (hits + missed) * (alarms + passed) * (hits + alarms) * (missed + passed)
    error = (missed / (hits + missed) + alarms / (alarms + passed)) / 2 if both else None
    values = {
        "precision": hits / (hits + alarms) if hits + alarms else None,
        "f1": 2 * hits / (2 * hits + missed + alarms) if hits + missed + alarms else None,
        "balanced_error": error,
        "youden": None if error is None else 1 - 2 * error,
        "matthews_correlation": (hits * passed - missed * alarms) / math.sqrt(spread)
        if spread
        else None,
    }
    total = sum(tally.values())
    ratios: Json = {
        name: {"value": value, "trials": total, "confidence": found.confidence}
        for name, value in values.items()
    }
    return {**ratios, "prevalence": (hits + missed) / total if total else None}


def _under_policy(found: Recount) -> Json | None:
    blocked, counted = {"block"}, {"allow", "block"}
    for outcome in ("malformed", "error"):
        policy = found.source.manifest[f"on_{outcome}"]
        if policy == "block":
            blocked.add(outcome)
        if policy in {"block", "allow", "fallback_to_main"}:
            counted.add(outcome)
    return None if counted == _DECIDED else found.errors(blocked=blocked, counted=counted)


def _predictive(found: Recount) -> list[Json]:
    """Bayes' rule on the raw rates at each stated prevalence (Mercaldo, Lau & Zhou 2007)."""
    stated = found.source.manifest.get("settings", {}).get("stats", {}).get("prevalence", [])
    tally = Counter((answer.subject.is_attack, found.outcome(answer)) for answer in found.answers)
    attacks = tally[True, "block"] + tally[True, "allow"]
    benign = tally[False, "block"] + tally[False, "allow"]
    said: list[Json] = []
    for share in stated:
        if not 0 < share < 1:
            continue
        positive = negative = None
        if attacks and benign:
            sensitivity, alarm = tally[True, "block"] / attacks, tally[False, "block"] / benign
            blocked = share * sensitivity + (1 - share) * alarm
            allowed = share * (1 - sensitivity) + (1 - share) * (1 - alarm)
            positive = share * sensitivity / blocked if blocked else None
            negative = (1 - share) * (1 - alarm) / allowed if allowed else None
        said.append(
            {
                "prevalence": share,
                "positive": {"value": positive, "trials": attacks + benign},
                "negative": {"value": negative, "trials": attacks + benign},
            }
        )
    return said


def _width(estimate: Json, *, name: str, margin: float) -> Json:
    half = None if estimate["low"] is None else (estimate["high"] - estimate["low"]) / 2
    return {"rate": name, "half_width": half, "wanted": margin, "trials": estimate["trials"]}


def _slices(found: Recount) -> list[Json]:
    minimum, tables = found.source.manifest["min_per_category"], []
    for facet, label, slices in sort_answers(found.source, found.sides()):
        error, rows = "allow" if label == "attack" else "block", []
        for (name, folded), inside in slices.items():
            estimate = found.share(inside, hit=error.__eq__, counts=_DECIDED.__contains__)
            is_thin = estimate["trials"] < minimum or estimate["few_groups"]
            row = {"name": name, "asked": len(inside), "folded": folded, "is_greyed": is_thin}
            rows.append({**row, "rate": estimate})
        rows.sort(key=_worst_first)
        tables.append({"facet": facet, "label": label, "rates": rows})
    return tables


def _worst_first(row: Json) -> tuple[bool, float, int, str]:
    value = row["rate"]["value"]
    worst = 1.0 if value is None else -value
    return (row["folded"] > 0, worst, -row["rate"]["trials"], row["name"])


def _standings(found: Recount, by_category: list[Json], overall: Json) -> Json:
    rates = {row["name"]: row["rate"] for row in by_category}
    minimum, said = found.source.manifest["min_per_category"], {}
    for category in found.source.manifest["categories"]:
        own = rates.get(category)
        if own is None:
            said[category] = "not tested"
        elif own["trials"] < minimum or own["few_groups"] or None in (own["high"], overall["high"]):
            said[category] = "not assessable"
        else:
            is_addressed = 1 - own["high"] > overall["high"]
            said[category] = "addressed" if is_addressed else "not addressed"
    return said


def _stability(found: Recount) -> Json | None:
    repeats = found.source.manifest["repeats"]
    if repeats < 2:
        return None
    by_sample: dict[int, list[str]] = {}
    for answer in found.answers:
        by_sample.setdefault(answer.subject.position, []).append(found.outcome(answer))
    whole = {
        position: outcomes.count("block")
        for position, outcomes in by_sample.items()
        if len(outcomes) == repeats and set(outcomes) <= _DECIDED
    }
    subjects = found.source.subjects
    said: Json = {"left_out": len(subjects) - len(whole)}
    for side, is_attack in (("attacks", True), ("benign", False)):
        blocks = [
            whole[s.position] for s in subjects if s.position in whole and s.is_attack == is_attack
        ]
        said[side] = _spread(blocks, repeats)
    return said


def _spread(blocks: list[int], repeats: int) -> Json:
    rates = [count / repeats for count in blocks]
    said: Json = {"samples": len(rates), "repeats": repeats}
    if not rates:
        return {**said, "mean": None, "within": None, "flip_rate": None}
    within = fmean(rate * (1 - rate) for rate in rates) * repeats / (repeats - 1)
    said |= {
        "mean": fmean(rates),
        "within": within,
        "disagreement": 2 * within,
        "flip_rate": fmean(0 < count < repeats for count in blocks),
    }
    if len(rates) > 1:
        said["standard_error"] = math.sqrt(variance(rates) / len(rates))
        said["between"] = max(0.0, variance(rates) - within / repeats)
    return said
