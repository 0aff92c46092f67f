"""Bypasses and false alarms as SARIF 2.1.0, for code scanning and anything else that reads it."""

from __future__ import annotations

import json
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from guardmark.analysis.defense.bypasses import Flaw
from guardmark.core.sample import Severity
from guardmark.core.values import dataclass
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.defense.bypasses import ListedSample, SampleAnswer
    from guardmark.core.sample import Sample

    Json = dict[str, Any]

MOST_RESULTS: Final = 5_000
"""Results written at most, worst first: what GitHub shows of one analysis."""

FINGERPRINT: Final = "guardmark/v1"
"""Name of the fingerprint: defense, rule and content of a sample; equal in every run."""

GITHUB_FINGERPRINT: Final = "primaryLocationLineHash"
"""The name that code scanning goes by. Without it, all findings of a line would be one alert."""

_EXCERPT: Final = 200
_UNNAMED: Final = "uncategorised"
_FALSE_ALARM: Final = "false-alarm"
_LEVELS: Final = {
    Severity.CRITICAL: ("error", "9.5"),
    Severity.HIGH: ("error", "8.0"),
    Severity.MEDIUM: ("warning", "5.5"),
    Severity.LOW: ("note", "3.0"),
}
"""SARIF level of a bypass, and the number GitHub sorts rules by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A sample to report and where it stands."""

    listed: ListedSample
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseLine:
    """Where a defense stands in a configuration."""

    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFindings:
    """What an earlier run had found: of a later one only the rest is written.

    Attributes:
        run: Name of the earlier run.
        guid: Its identity.
        fingerprints: Those of its findings.
    """

    run: str
    guid: str
    fingerprints: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """What was analysed.

    Attributes:
        run: Name of the run.
        version: Version of guardmark.
        baselines: Defenses of which nothing is told.
        texts: Whether texts may be told.
        most: How many findings are written at most, worst first.
        guid: Identity of the run, or empty.
        lines: Where defenses stand; a finding of another points at its sample.
        known: What an earlier run had found, or None.
    """

    run: str
    version: str
    baselines: frozenset[str]
    texts: bool
    most: int = MOST_RESULTS
    guid: str = ""
    lines: Mapping[str, DefenseLine] = field(default_factory=dict)
    known: KnownFindings | None = None


def fingerprints_of(places: Sequence[Located], analysed: Analysed) -> frozenset[str]:
    """Return the fingerprints of what defenses got wrong."""
    return frozenset(row["fingerprint"] for row in _all_results(places, analysed))


def _all_results(places: Sequence[Located], analysed: Analysed) -> list[Json]:
    rows: list[Json] = []
    for located in places:
        rows.extend(_results(located, analysed))
    return rows


def sarif_json(places: Sequence[Located], analysed: Analysed) -> str:
    """Write what defenses got wrong as SARIF, or what of it an earlier run had not found."""
    from jinja2 import Environment  # on use: a run without this report needs no template

    results = _all_results(places, analysed)
    known, rows, counts = analysed.known, results, {"found": len(results)}
    if known is not None:
        rows = [row for row in results if row["fingerprint"] not in known.fingerprints]
        absent = known.fingerprints.difference(row["fingerprint"] for row in results)
        counts |= {"new": len(rows), "unchanged": len(results) - len(rows), "absent": len(absent)}
    shown = rows[: analysed.most]
    counts["shown"] = len(shown)
    names = sorted({row["rule"] for row in shown})
    rules = {rule: _worst_severity(places, rule) for rule in names}
    for row in shown:
        row["index"] = names.index(row["rule"])
    environment = Environment(autoescape=False)  # noqa: S701 - each value is written as JSON
    environment.filters["plain"] = plain_line
    text = Path(__file__).with_name("sarif.json.jinja").read_text(encoding="utf-8")
    log = environment.from_string(text).render(
        analysed=analysed,
        rules=rules,
        false_alarm=_FALSE_ALARM,
        counts=counts,
        shown=shown,
        fingerprint=FINGERPRINT,
        github_fingerprint=GITHUB_FINGERPRINT,
    )
    return json.dumps(json.loads(log), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _results(located: Located, analysed: Analysed) -> Iterator[Json]:
    """Yield a finding for each candidate that let a sample through, or blocked it, wrongly."""
    sample = located.listed.sample
    digest, place = sample.prompt.digest().hex(), located.place
    for answer in located.listed.answers:
        if answer.defense in analysed.baselines:
            continue
        if answer.flaw is Flaw.BYPASS:
            rule, level = _bypass_rule(sample), _level(sample)[0]
        elif answer.flaw is Flaw.FALSE_ALARM:
            rule, level = _FALSE_ALARM, "note"
        else:
            continue
        content = f"{answer.defense}\0{rule}\0{digest}"
        where = analysed.lines.get(answer.defense, DefenseLine(path=place, line=1))
        yield {
            "rule": rule,
            "level": level,
            "message": _message(sample, answer, digest=digest, texts=analysed.texts),
            "fingerprint": sha256(content.encode()).hexdigest(),
            "sample": sample,
            "answer": answer,
            "digest": digest,
            "place": place,
            "uri": quote(where.path, safe="/.-_~"),
            "line": where.line,
        }


def _message(sample: Sample, answer: SampleAnswer, *, digest: str, texts: bool) -> str:
    """Say what a defense did wrongly, with the beginning of the text or its hash alone."""
    error = "blocked benign sample"
    if answer.flaw is Flaw.BYPASS:
        error = "let through attack"
    facets = [sample.category]
    if sample.severity:
        facets.append(sample.severity.value)
    known = ", ".join(filter(None, facets))
    head = f"{answer.defense} {error} {sample.id}"
    if known:
        head += f" ({known})"
    if not texts:
        return plain_line(f"{head}, sha256 {digest}")
    text = plain_line(sample.prompt.words)
    excerpt = text[:_EXCERPT]
    if len(text) > _EXCERPT:
        excerpt += f"… ({count_text(len(sample.prompt.words))} characters)"
    # Square brackets would read as a link in a SARIF message.
    return f"{plain_line(head)}: {excerpt}".replace("[", "(").replace("]", ")")


def _bypass_rule(sample: Sample) -> str:
    return f"bypass/{plain_line(sample.category) or _UNNAMED}"


def _level(sample: Sample) -> tuple[str, str]:
    return _LEVELS.get(sample.severity or Severity.MEDIUM, _LEVELS[Severity.MEDIUM])


def _worst_severity(places: Sequence[Located], rule: str) -> str:
    """Return the greatest severity number of the attacks of a rule."""
    worst = ""
    for located in places:
        sample = located.listed.sample
        if sample.is_attack and _bypass_rule(sample) == rule:
            worst = max(worst, _level(sample)[1])
    return worst
