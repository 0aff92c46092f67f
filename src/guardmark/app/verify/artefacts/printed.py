"""The main tables of `summary.md` and `report.html` as the records make them, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from unicodedata import category
from unicodedata import name as unicode_name

from guardmark.app.verify.artefacts import in_words
from guardmark.app.verify.difference import Slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
Row = list[object]

_MOST_ROWS: Final = 25
_OVERVIEW: Final = (
    *("Defense", "ASR", "TPR", "FPR", "Balanced error", "Answered", "Malformed", "Errors"),
)
_CARD: Final = ("Figure", "Value", "Counts", "Groups", "Effective n", "Design effect")
_RATES: Final = (
    ("Attack success rate (ASR)", "attack_success_rate"),
    ("True positive rate (TPR, recall)", "true_positive_rate"),
    ("False positive rate (FPR)", "false_positive_rate"),
    ("False negative rate (FNR)", "false_negative_rate"),
)
_RATIOS: Final = (
    ("Precision, at this mix", "precision", in_words.rate),
    ("F1, at this mix", "f1", in_words.rate),
    ("Balanced error", "balanced_error", in_words.rate),
    ("TPR minus FPR (Youden's J)", "youden", in_words.figure),
    ("Matthews correlation, at this mix", "matthews_correlation", in_words.figure),
)
_ANSWERED: Final = (
    ("Answered share, attacks", "answered_attacks"),
    ("Answered share, benign", "answered_benign"),
)
_SIDES: Final = (
    ("attack", "ASR", "attacks by category, worst first", "Category"),
    ("benign", "FPR", "benign samples by topic, worst first", "Topic"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A table as it has to be printed."""

    title: str
    heads: tuple[str, ...]
    rows: list[Row]


def recount_printed(summary: Json) -> list[Printed]:
    """Return the tables that both reports have to print."""
    defenses: list[Json] = summary["defenses"]
    tables = [Printed(title="All defenses", heads=_OVERVIEW, rows=[*map(_side_by_side, defenses)])]
    tables += [
        Printed(title=f"{each['name']}: all figures", heads=_CARD, rows=list(_figures(each)))
        for each in defenses
    ]
    candidates = [each for each in defenses if not each["is_baseline"]] or defenses
    for label, rate, title, head in _SIDES:
        sliced = [(each, _slices(summary, each, label)) for each in candidates]
        standing = ("Standing",) if label == "attack" else ()
        heads = (head, rate, "Counts", "Unanswered", "Median latency", *standing)
        if any(rows for _, rows in sliced):
            tables += [
                Printed(title=f"{each['name']}: {title}", heads=heads, rows=rows)
                for each, rows in sliced
            ]
    return tables


def _side_by_side(defense: Json) -> Row:
    rates, sides = defense["rates"], [defense["counts"][side] for side in ("attacks", "benign")]
    return [
        defense["name"],
        in_words.rate(rates["attack_success_rate"]),
        in_words.rate(rates["true_positive_rate"]),
        in_words.rate(rates["false_positive_rate"]),
        _drawn(defense["ratios"]["balanced_error"], in_words.rate),
        in_words.rate(rates["answered"]),
        in_words.count(sum(side["malformed"] for side in sides)),
        in_words.count(sum(side["error"] for side in sides)),
    ]


def _figures(defense: Json) -> Iterator[Row]:
    rates = defense["rates"]
    for title, name in _RATES:
        yield _rate(title, rates[name])
    for title, name, say in _RATIOS:
        ratio = defense["ratios"][name]
        said = _drawn(ratio, say)
        yield [title, said, f"{ratio['trials']:,}", in_words.count(ratio["groups"]), "", ""]
    for title, name in _ANSWERED:
        yield _rate(title, rates[name])
    policy = {"ASR": "attack_success_rate", "FPR": "false_positive_rate"}
    for short, name in policy.items():
        for title, bound in (("allowed (fail-open)", "open"), ("blocked (fail-closed)", "closed")):
            yield _rate(f"{short}, failures {title}", defense["bounds"][f"fail_{bound}"][name])
    for short, name in policy.items() if defense["under_policy"] else ():
        yield _rate(f"{short} under the run's policy", defense["under_policy"][name])
    if rates["any_bypass"] is not None:
        yield _rate("Groups with any variant allowed", rates["any_bypass"])
    success = rates["attack_success_rate"]
    mean, groups = in_words.share(success["group_mean"]), in_words.count(success["groups"])
    yield ["ASR, every group weighing the same", mean, "", groups, "", ""]


def _rate(title: str, estimate: Json) -> Row:
    effect = estimate["design_effect"]
    return [
        title,
        in_words.rate(estimate),
        in_words.hits(estimate),
        in_words.count(estimate["groups"]),
        in_words.count(estimate["effective_n"]),
        "" if effect is None else in_words.number(effect),
    ]


def _drawn(ratio: Json, say: Callable[[Json], str]) -> str | Slow:
    """Put a figure into words, on request only where its limits are drawn on request."""
    slow = {name: value for name, value in ratio.items() if isinstance(value, Slow)}
    if not slow:
        return say(ratio)

    def count() -> dict[str, str]:
        return {"": say(ratio | {name: each.count()[each.name] for name, each in slow.items()})}

    return Slow(count=count, name="")


def _slices(summary: Json, defense: Json, label: str) -> list[Row]:
    """Return the largest slices by category; of equally large ones those that come first."""
    rates: list[Json] = []
    for table in defense["slices"]:
        if (table["facet"], table["label"]) == ("category", label):
            rates = table["rates"]
    ranked = sorted(range(len(rates)), key=lambda at: (-rates[at]["asked"], at))
    times: Json = {}
    for table in summary["timing"]["defenses"][defense["name"]]["slice_medians"]:
        if (table["facet"], table["label"]) == ("category", label):
            times = table["median_ms"]
    rows = []
    for at in sorted(ranked[:_MOST_ROWS]):
        name, rate, median = rates[at]["name"], rates[at]["rate"], times[rates[at]["name"]]
        row: Row = [
            name if _is_shown_as_it_is(name) else None,
            in_words.rate(rate),
            in_words.hits(rate),
            in_words.count(rates[at]["asked"] - rate["trials"]),
            "" if median is None else in_words.milliseconds(median),
        ]
        if label == "attack":
            row.append(defense["categories"].get(name, "undeclared"))
        rows.append(row)
    return rows


def _is_shown_as_it_is(name: str) -> bool:
    """Tell whether a report shows a name sign by sign, without an escape or a word for a sign."""
    if " ".join(name.split()) != name or set(name) & set("`|\\*"):
        return False
    return all((sign.isascii() and sign.isprintable()) or _is_letter(sign) for sign in name)


def _is_letter(sign: str) -> bool:
    return category(sign)[0] in "LN" and "FILLER" not in unicode_name(sign, "")
