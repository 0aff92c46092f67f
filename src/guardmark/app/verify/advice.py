"""Advice as the written rules give it, from the figures counted a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Json = dict[str, Any]

_ANSWERED_ENOUGH: Final = 0.99
_FALSE_ALARMS: Final = 0.05
_BYPASSES: Final = 0.5


def recount_advice(defenses: Sequence[Json], comparison: Json | None) -> list[Json]:
    """Return what the rules advise, in the shape of `summary.json`; the sentences are left out."""
    candidates = [each for each in defenses if not each["is_baseline"]]
    rules: tuple[Callable[[Json], Iterator[Json]], ...] = (
        _failures,
        _no_separation,
        _mostly_bypassed,
        _critical,
        _worst_category,
        _false_alarms,
        _threshold,
    )
    said = [found for rule in rules for each in candidates for found in rule(each)]
    said += [found for pair in (comparison or {}).get("pairs", ()) for found in _between(pair)]
    return said + [found for each in candidates for found in _too_wide(each)]


def _advice(
    rule: str,
    defense: str,
    subject: str = "",
    *,
    figures: Json | None = None,
    numbers: Json | None = None,
) -> Json:
    return {
        "rule": rule,
        "defense": defense,
        "subject": subject,
        "figures": figures or {},
        "numbers": numbers or {},
    }


def _failures(defense: Json) -> Iterator[Json]:
    answered, counts = defense["rates"]["answered"], defense["counts"]
    malformed, errors = (
        sum(counts[side][name] for side in ("attacks", "benign")) for name in ("malformed", "error")
    )
    if answered["value"] is None or (answered["value"] >= _ANSWERED_ENOUGH and not malformed):
        return
    kinds = sorted(counts["error_kinds"].items(), key=lambda pair: (-pair[1], pair[0]))
    yield _advice(
        "failures",
        defense["name"],
        kinds[0][0] if kinds else "malformed",
        figures={
            "answered_share": answered,
            **{
                f"attack_success_rate_{way}": defense["bounds"][way]["attack_success_rate"]
                for way in ("fail_open", "fail_closed")
            },
        },
        numbers={"malformed": malformed, "errors": errors},
    )


def _is_blind(defense: Json) -> bool:
    low = defense["rates"]["true_positive_rate"]["low"]
    high = defense["rates"]["false_positive_rate"]["high"]
    return low is not None and high is not None and low <= high


def _no_separation(defense: Json) -> Iterator[Json]:
    if _is_blind(defense):
        names = ("true_positive_rate", "false_positive_rate")
        figures = {name: defense["rates"][name] for name in names}
        yield _advice("no_separation", defense["name"], figures=figures)


def _mostly_bypassed(defense: Json) -> Iterator[Json]:
    rate = defense["rates"]["attack_success_rate"]
    if rate["low"] is not None and rate["low"] > _BYPASSES and not _is_blind(defense):
        figures = {"attack_success_rate": rate}
        yield _advice("mostly_bypassed", defense["name"], figures=figures)


def _critical(defense: Json) -> Iterator[Json]:
    rates = {row["name"]: row["rate"] for row in _slices(defense, "severity")}
    for severity in ("critical", "high"):
        if severity in rates and rates[severity]["successes"]:
            figures = {"attack_success_rate": rates[severity]}
            yield _advice("critical", defense["name"], severity, figures=figures)
            return


def _worst_category(defense: Json) -> Iterator[Json]:
    overall = defense["rates"]["attack_success_rate"]
    for row in _slices(defense, "category"):
        if row["is_greyed"] or None in (row["rate"]["low"], overall["high"]):
            continue
        if row["rate"]["low"] > overall["high"]:
            figures = {"attack_success_rate": row["rate"], "overall": overall}
            yield _advice("worst_category", defense["name"], row["name"], figures=figures)
        return


def _false_alarms(defense: Json) -> Iterator[Json]:
    rate = defense["rates"]["false_positive_rate"]
    if rate["low"] is not None and rate["low"] > _FALSE_ALARMS:
        yield _advice("false_alarms", defense["name"], figures={"false_positive_rate": rate})


def _threshold(defense: Json) -> Iterator[Json]:
    present = {f"present_{name}": defense["rates"][name] for name in _SIDES}
    for point in (defense["thresholds"] or {"limited": []})["limited"][1:]:
        if _is_gain(point, defense["rates"]):
            yield _advice(
                "threshold",
                defense["name"],
                f"FPR {100 * point['max_fpr']:.0f} %",
                figures={**point["rates"], **present},
                numbers={"threshold": point["threshold"]},
            )
            return


_SIDES: Final = ("attack_success_rate", "false_positive_rate")


def _is_gain(point: Json, present: Json) -> bool:
    """Tell whether fewer attacks get through, bound against bound, and no more alarms are shown."""
    if point["rates"] is None or not point["resolvable"]:
        return False
    attacks, benign = (point["rates"][name] for name in _SIDES)
    now, alarms = (present[name] for name in _SIDES)
    if None in (attacks["high"], now["low"], benign["low"], alarms["high"]):
        return False
    return bool(attacks["high"] < now["low"] and benign["low"] <= alarms["high"])


def _between(pair: Json) -> Iterator[Json]:
    if pair["verdict"] not in {"first better", "second better", "trade-off"}:
        return
    gaps = [pair[name]["difference"]["value"] or 0.0 for name in _SIDES]
    is_first = gaps[0] < 0
    names = (pair["first"], pair["second"])
    winner, loser = names if is_first else names[::-1]
    yield _advice(
        "trade_off" if pair["verdict"] == "trade-off" else "better",
        winner,
        loser,
        numbers={
            "attack_success_rate_difference": -abs(gaps[0]),
            "false_positive_rate_difference": gaps[1] if is_first else -gaps[1],
        },
    )


def _too_wide(defense: Json) -> Iterator[Json]:
    for width in defense["widths"]:
        if width["half_width"] is None or width["half_width"] <= width["wanted"]:
            continue
        numbers = {
            "half_width": width["half_width"],
            "wanted": width["wanted"],
            "samples": width["trials"],
            "needed": width["needed"],
        }
        yield _advice("too_wide", defense["name"], width["rate"], numbers=numbers)


def _slices(defense: Json, facet: str) -> list[Json]:
    return [
        row
        for table in defense["slices"]
        if table["facet"] == facet and table["label"] == "attack"
        for row in table["rates"]
    ]
