"""Bypasses and false alarms as SARIF 2.1.0, for code scanning and anything else that reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from guardmark.analysis.defense.bypasses import Flaw
from guardmark.core.sample import Severity
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.defense.bypasses import ListedSample, SampleAnswer
    from guardmark.core.sample import Sample

    Json = dict[str, Any]

MOST_RESULTS: Final = 5_000
"""Results written at most, worst first: what GitHub shows of one analysis."""

FINGERPRINT: Final = "guardmark/v1"
"""Name of the fingerprint: defense, rule and content of a sample; equal in every run."""

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
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
class Analysed:
    """What was analysed."""

    run: str
    version: str
    baselines: frozenset[str]
    texts: bool


def sarif_json(places: Sequence[Located], analysed: Analysed) -> str:
    """Write what defenses got wrong as SARIF."""
    rows = [row for each in places for row in _results(each, analysed)]
    shown = rows[:MOST_RESULTS]
    rules = sorted({str(row["ruleId"]) for row in shown})
    for row in shown:
        row["ruleIndex"] = rules.index(str(row["ruleId"]))
    log: Json = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "guardmark",
                        "semanticVersion": analysed.version,
                        "rules": [_rule(rule, places) for rule in rules],
                    }
                },
                "automationDetails": {"id": f"guardmark/{plain_line(analysed.run)}/"},
                "columnKind": "unicodeCodePoints",
                "properties": {"found": len(rows), "shown": len(shown)},
                "results": shown,
            }
        ],
    }
    return json.dumps(log, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _results(located: Located, analysed: Analysed) -> Iterator[Json]:
    rules = {Flaw.BYPASS: _bypass_rule(located.listed.sample), Flaw.FALSE_ALARM: _FALSE_ALARM}
    for answer in located.listed.answers:
        if answer.flaw in rules and answer.defense not in analysed.baselines:
            yield _result(located, answer, rules[answer.flaw], analysed)


def _result(located: Located, answer: SampleAnswer, rule: str, analysed: Analysed) -> Json:
    sample = located.listed.sample
    digest = sample.prompt.digest().hex()
    content = f"{answer.defense}\0{rule}\0{digest}"
    level = _level(sample)[0] if answer.flaw is Flaw.BYPASS else "note"
    return {
        "ruleId": rule,
        "level": level,
        "kind": "fail",
        "message": {"text": _message(sample, answer, digest=digest, texts=analysed.texts)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(located.place, safe="/.-_~")},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [
                    {
                        "name": plain_line(sample.id),
                        "fullyQualifiedName": plain_line(f"{located.place}/{sample.id}"),
                    }
                ],
            }
        ],
        "partialFingerprints": {FINGERPRINT: sha256(content.encode()).hexdigest()},
        "properties": {
            "defense": plain_line(answer.defense),
            "severity": sample.severity.value if sample.severity else None,
            "score": answer.score,
            "sha256": digest,
        },
    }


def _message(sample: Sample, answer: SampleAnswer, *, digest: str, texts: bool) -> str:
    done = "let through attack" if answer.flaw is Flaw.BYPASS else "blocked benign sample"
    facets = [sample.category, sample.severity.value if sample.severity else ""]
    known = ", ".join(facet for facet in facets if facet)
    head = f"{answer.defense} {done} {sample.id}" + (f" ({known})" if known else "")
    if not texts:
        return plain_line(f"{head}, sha256 {digest}")
    text = plain_line(sample.prompt.text)
    cut = text[:_EXCERPT] + (
        f"… ({count_text(len(sample.prompt.text))} characters)" if len(text) > _EXCERPT else ""
    )
    # Square brackets would read as a link in a SARIF message.
    return f"{plain_line(head)}: {cut}".replace("[", "(").replace("]", ")")


def _bypass_rule(sample: Sample) -> str:
    return f"bypass/{plain_line(sample.category) or _UNNAMED}"


def _level(sample: Sample) -> tuple[str, str]:
    return _LEVELS.get(sample.severity or Severity.MEDIUM, _LEVELS[Severity.MEDIUM])


def _worst_severity(places: Sequence[Located], rule: str) -> str:
    """Return the greatest severity number of the attacks of a rule."""
    attacks = (each.listed.sample for each in places if each.listed.sample.is_attack)
    return max(_level(sample)[1] for sample in attacks if _bypass_rule(sample) == rule)


def _rule(rule: str, places: Sequence[Located]) -> Json:
    if rule == _FALSE_ALARM:
        return {
            "id": rule,
            "name": "FalseAlarm",
            "shortDescription": {"text": "A defense blocked a benign input"},
            "defaultConfiguration": {"level": "note"},
            "properties": {"tags": ["usability"]},
        }
    category = rule.removeprefix("bypass/")
    return {
        "id": rule,
        "name": "Bypass",
        "shortDescription": {"text": f"A defense let an attack through: {category}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["security"], "security-severity": _worst_severity(places, rule)},
    }
