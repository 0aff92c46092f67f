"""The page of the field study: what was measured, beside what each guard says of itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

TITLES: Final = {
    "core": "On the built-in data, made to avoid known wording",
    "public": "On public data: injections, jailbreaks and extraction; benign and over-refusal texts",
    "words": "Filters of words, on sentences with slurs or swear words, and plain requests",
}
HEAD: Final = """# Field study: guards that people install, measured

{measured} guards from package registries, measured on {date} with guardmark, each in an environment of its own, asked one
text at a time{network}. `make field-study` repeats it and writes this page,
a card for each guard into `docs/field-study/cards` and a board of them into `build/field-study`; how is told in
[Measure a guard in another environment](../how-to/measure-a-guard-in-another-environment.md).

**How to read it.** ASR is the share of attacks that a guard let through, FPR that of benign texts it blocked; lower is better for both. Brackets
hold the 95 % interval, which counts texts of one origin together. Guards that share a *tier* letter are not told apart by the adjusted paired tests (Holm over
all pairs); between others there is a difference. Latency is that of one answer as the program that asks sees it, one question at a time, without start-up, on a machine that did other work
too: compare its orders of magnitude, no more.

**What this is not.** Each guard was measured at the version and the defaults stated below, on these data, in text alone. Other settings, extras with models, services,
languages, conversations, tools and outputs were not tried, nor was any of them tuned. Several guards do more than look at one text (they follow sessions, tools or data flows), which these figures do not
show. Guards that were learned may have been trained on some of these public texts, which would flatter them. The data fit the purpose that a guard states, but nobody's own traffic: measure yours. No text of any data set stands here.
"""
QUICK_MS: Final = 3.0
"""Median within which a guard answers that is attacked; it is asked thousands of times."""
ATTACK_HEAD: Final = """
## Under attack

{count} guards against injections, of those that answer within {quick:g} ms in the median, over a few of the same attacks: somebody rewrites each, watches whether it is
blocked, and learns from it (`guardmark adapt`). ASR counts an attack that got through within so many tries. The area under ASR by tries (on a
logarithmic scale, 1: all through at once) says how much effort it costs.
"""


def write_page(
    page: Path,
    runs: Mapping[str, Path],
    *,
    guards: Sequence[Mapping[str, Any]],
    skipped: Sequence[Mapping[str, str]],
    is_cut: bool,
    attacked: Mapping[int, Path] | None = None,
) -> None:
    """Write the page from the summaries of finished runs, and of attacked ones by their budget."""
    summaries = {
        name: json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for name, folder in runs.items()
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    tries = {
        budget: json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for budget, folder in (attacked or {}).items()
    }
    lines = [*_lines(summaries, guards, skipped, is_cut=is_cut), *_under_attack(tries)]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def quick_ones(folder: Path) -> set[str]:
    """Return the guards of a finished run that answer quickly."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return {
        name
        for name, times in summary["timing"]["defenses"].items()
        for each in times["benign"]["quantiles_ms"]
        if each["quantile"] == 0.5 and (each["value"] or QUICK_MS + 1) <= QUICK_MS
    }


def _under_attack(tries: Mapping[int, Any]) -> Iterator[str]:
    """Tell how far each guard holds against someone who rewrites attacks and watches the answers."""
    found = {
        budget: {each["defense"]: each for each in summary["adaptive"]}
        for budget, summary in tries.items()
    }
    if not found:
        return
    last = found[max(found)]
    yield ATTACK_HEAD.format(count=len(last), quick=QUICK_MS)
    heads = [f"after {budget} tries" for budget in found]
    yield f"| guard | attacks | as they are | {' | '.join(heads)} | area |"
    yield f"|---|--:|--:|{'--:|' * len(heads)}--:|"
    for name in sorted(last, key=lambda each: (last[each]["area"]["adaptive"]["value"], each)):
        area = last[name]["area"]["adaptive"]
        cells = [
            *(name, f"{last[name]['attacks']:,}", _rate(last[name]["rounds"][0]["strict"])),
            *(_rate(each[name]["arms"][0]["at_budget"]) for each in found.values()),
            f"{area['value']:.2f} [{area['low']:.2f}, {area['high']:.2f}]",
        ]
        yield f"| {' | '.join(cells)} |"


def _lines(
    summaries: Mapping[str, Any],
    guards: Sequence[Mapping[str, Any]],
    skipped: Sequence[Mapping[str, str]],
    *,
    is_cut: bool,
) -> Iterator[str]:
    date = max((each["timing"]["created_utc"] for each in summaries.values()), default="")[:10]
    network = " with the network cut off" if is_cut else " (the network could not be cut off here)"
    yield HEAD.format(measured=len(guards), date=date, network=network)
    for name, summary in summaries.items():
        yield f"## {TITLES[name]}\n"
        yield _data(summary)
        yield "| guard | tier ASR | ASR | tier FPR | FPR | p50 ms | p95 ms | no decision |"
        yield "|---|---|--:|---|--:|--:|--:|--:|"
        ranked = sorted(summary["defenses"], key=_rank)
        yield from (_row(each, summary) for each in ranked)
        yield ""
    yield "## What each one says of itself\n"
    yield "Said in its own documentation at that version; measured in the first table that has it.\n"
    yield "| guard | version | licence | kind | blocks when | its own claim | measured ASR, FPR |"
    yield "|---|---|---|---|---|---|---|"
    yield from (_claim(guard, summaries) for guard in guards)
    if skipped:
        yield "\n## Left out\n"
        yield from (f"- {each['name']}: {each['reason']}" for each in skipped)


def _data(summary: Mapping[str, Any]) -> str:
    sets = summary["data"]
    attacks, benign = (sum(each[key] for each in sets) for key in ("attacks", "benign"))
    return f"{attacks:,} attacks, {benign:,} benign texts.\n"


def _rank(defense: Mapping[str, Any]) -> tuple[float, str]:
    value = defense["rates"]["attack_success_rate"]["value"]
    return (2.0 if value is None else value, defense["name"])


def _row(defense: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    name, rates = defense["name"], defense["rates"]
    comparison = summary["comparison"]
    tiers = [
        {each["defense"]: each["letters"] for each in comparison[f"lowest_{rate}"]["tiers"]}
        if comparison
        else {}
        for rate in ("attack_success_rate", "false_positive_rate")
    ]
    answered = rates["answered"]
    failed = answered["trials"] - answered["successes"]
    cells = [
        *(name, tiers[0].get(name, ""), _rate(rates["attack_success_rate"])),
        *(tiers[1].get(name, ""), _rate(rates["false_positive_rate"])),
        *(_quantile(summary["timing"]["defenses"].get(name), q) for q in (0.5, 0.95)),
        f"{failed:,}" if failed else "0",
    ]
    return f"| {' | '.join(cells)} |"


def _rate(rate: Mapping[str, Any]) -> str:
    if rate["value"] is None or rate["low"] is None:
        return "undefined"
    value, low, high = (100 * rate[key] for key in ("value", "low", "high"))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def _quantile(times: Mapping[str, Any] | None, quantile: float) -> str:
    """Return a quantile over benign texts, the usual traffic."""
    for each in times["benign"]["quantiles_ms"] if times else ():
        if each["quantile"] == quantile and each["value"] is not None:
            return f"{each['value']:.2g}" if each["value"] < 100 else f"{each['value']:,.0f}"
    return "n/a"


def _claim(guard: Mapping[str, Any], summaries: Mapping[str, Any]) -> str:
    measured = [
        f"{_rate(each['rates']['attack_success_rate'])}, {_rate(each['rates']['false_positive_rate'])}"
        for name in ("public", "words", "core")
        if name in summaries
        for each in summaries[name]["defenses"]
        if each["name"] == guard["name"]
    ]
    cells = [
        *(guard["package"], guard["version"], guard["licence"], guard["kind"], guard["decides"]),
        *(guard["claim"], measured[0] if measured else "not measured"),
    ]
    return f"| {' | '.join(cells)} |"
