"""The limits that a run sets itself, judged a second time by the intervals counted again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.artefacts import in_words
from guardmark.app.verify.early.stopped import BY_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guardmark.app.verify.recount import Recount
    from guardmark.app.verify.source import Source

Json = dict[str, Any]

_RATES: Final = (
    ("asr_upper", "attacks", "attack_success_rate"),
    ("fpr_upper", "benign", "false_positive_rate"),
)
_FAILURES: Final = (("max_malformed", "malformed"), ("max_errors", "error"))
_LATENCY: Final = "latency_p95_upper_ms"
_EVERYTHING: Final = {"allow", "block", "malformed", "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One limit, and what has to be said of it."""

    rule: str
    defense: str
    subject: str
    standing: str
    phrases: tuple[str, ...]


def recount_checks(
    source: Source, recounted: Json, recounts: Mapping[str, Recount]
) -> list[Check] | None:
    """Judge the limits that the configuration of a run sets."""
    limits = source.manifest.get("settings", {}).get("gate") or {}
    rules = [rule for rule, *_ in (*_RATES, *_FAILURES)] + [_LATENCY]
    if all(limits.get(rule) is None for rule in rules) and not limits.get("per_category"):
        return None
    run, checks = recounted["run"], []
    if run["state"] != "complete":
        said = f"only {run['stored']:,} of {run['planned']:,} records are stored"
        checks.append(
            Check(rule="complete", defense="run", subject="run", standing="open", phrases=(said,))
        )
    candidates = [each["name"] for each in recounted["defenses"] if not each["is_baseline"]]
    for name in limits.get("defenses") or candidates or list(recounts):
        checks += _of_defense(limits, recounted, recounts[name])
    return checks


def _of_defense(limits: Json, recounted: Json, found: Recount) -> Iterator[Check]:
    told = next(each for each in recounted["defenses"] if each["name"] == found.name)
    for rule, subject, rate in _RATES:
        if limits.get(rule) is not None:
            yield _of_rate((rule, subject), told["rates"][rate], limits[rule], found=found)
    for rule, outcome in _FAILURES:
        if limits.get(rule) is not None:
            estimate = found.share(
                found.rows(), hit=outcome.__eq__, counts=_EVERYTHING.__contains__
            )
            yield _of_rate((rule, "samples"), estimate, limits[rule], found=found)
    rates = {
        row["name"]: row["rate"]
        for table in told["slices"]
        if (table["facet"], table["label"]) == ("category", "attack")
        for row in table["rates"]
    }
    nothing = {"value": None, "low": None, "high": None, "trials": 0, "method": ""}
    for category, limit in _by_category(limits, recounted).items():
        estimate, named = rates.get(category, nothing), ("per_category", category)
        check = _of_rate(named, estimate, limit, found=found)
        yield _exploratory(check) if told["stopped_early"] else check
    if limits.get(_LATENCY) is not None:
        timing = recounted["timing"]["defenses"][found.name]
        for subject in ("attacks", "benign"):
            (p95,) = (each for each in timing[subject]["quantiles"] if each["quantile"] == 0.95)
            yield _of_quantile(subject, p95, limits[_LATENCY], found=found)


def _by_category(limits: Json, recounted: Json) -> dict[str, float]:
    """Return the limit of each category that is named, or that the run has attacks of."""
    named: dict[str, float] = dict(limits.get("per_category") or {})
    if "*" not in named:
        return named
    everyone = named.pop("*")
    counts = recounted["coverage"]["categories"]
    present = sorted(name for name, count in counts.items() if count)
    return dict.fromkeys(present, everyone) | named


def _of_rate(named: tuple[str, str], estimate: Json, limit: float, *, found: Recount) -> Check:
    phrases = [
        f" the limit of {in_words.share(limit)}",
        f" {in_words.rate(estimate)} ({estimate['trials']:,} ",
    ]
    standing = _standing(estimate["low"], estimate["high"], limit)
    needed = _needed(estimate, limit, found.confidence)
    if standing == "open" and needed is not None:
        phrases.append(f" about {needed:,} ")
    return Check(
        rule=named[0],
        defense=found.name,
        subject=named[1],
        standing=standing,
        phrases=tuple(phrases),
    )


def _exploratory(check: Check) -> Check:
    """Leave a slice of a defense that was ended early open, whatever its interval says."""
    return Check(
        rule=check.rule,
        defense=check.defense,
        subject=check.subject,
        standing="open",
        phrases=check.phrases[:2],
    )


def _of_quantile(subject: str, p95: Json, limit: float, *, found: Recount) -> Check:
    phrases = [
        f" the limit of {in_words.milliseconds(limit)}",
        f" {in_words.time_quantile(p95)} ({p95['trials']:,} ",
    ]
    # From so many on, the extremes bound the quantile on both sides.
    tail, share = (1 - found.confidence) / 2, p95["quantile"]
    needed = max(1, math.ceil(math.log(tail) / math.log(max(share, 1 - share))))
    if p95["trials"] < needed:
        phrases.append(f" about {needed:,} ")
    if 0 < p95["trials"] < needed:
        wanted = f"{found.confidence:.0%} interval of the {share:g} quantile"
        phrases.append(f" {wanted} needs {needed} measurements, got {p95['trials']}")
    return Check(
        rule=_LATENCY,
        defense=found.name,
        subject=subject,
        standing=_standing(p95["low_ms"], p95["high_ms"], limit),
        phrases=tuple(phrases),
    )


def _standing(low: float | None, high: float | None, limit: float) -> str:
    """Judge a limit by the whole interval."""
    if high is not None and high <= limit:
        return "held"
    return "broken" if low is not None and low > limit else "open"


def _needed(estimate: Json, limit: float, confidence: float) -> int | None:
    """Return from how many samples on Wilson's interval leaves the limit out, at this rate."""
    is_mean = estimate["method"] == BY_GROUP
    rate = estimate["group_mean" if is_mean else "value"] or 0.0
    if rate == limit or limit in {0.0, 1.0}:
        return None
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    effect = estimate.get("design_effect") or 1.0
    return math.ceil(effect * z * z * limit * (1 - limit) / (rate - limit) ** 2)
