"""`results.sarif` as the records make it, on the second path."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from guardmark.app.verify.artefacts.worst_samples import candidates, choose, read_worst
from guardmark.app.verify.lines import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from guardmark.app.verify.artefacts.worst_samples import Worst
    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.recount import Recount
    from guardmark.app.verify.source import Source, Subject

Json = dict[str, Any]

_MOST: Final = 5_000
_FALSE_ALARM: Final = "false-alarm"
_LEVELS: Final = {
    "low": ("note", "3.0"),
    "medium": ("warning", "5.5"),
    "high": ("error", "8.0"),
    "critical": ("error", "9.5"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What one defense got wrong."""

    subject: Subject
    defense: str
    answer: Worst

    @property
    def rule(self) -> str:
        """Id of the rule that it breaks."""
        return _FALSE_ALARM if self.answer.flaw == "false_alarm" else _bypass(self.subject)


def check_sarif(path: Path, told: Json, comparer: Comparer) -> None:
    """Compare what defenses got wrong with the second count."""
    said = parsed(path.read_bytes())
    comparer.tree(
        path.name, "", said=said if isinstance(said, dict) else "no JSON object", found=told
    )


def recount_sarif(source: Source, recounts: Mapping[str, Recount]) -> Json:
    """Return what `results.sarif` has to say, as far as this path knows it."""
    telling = candidates(recounts)
    answers = {name: read_worst(recounts[name]) for name in telling}
    results: list[_Result] = []
    worst = dict[str, str]()
    for subject, place in _chosen(source, recounts, list(answers.values())):
        told = {name: answers[name].get(place) for name in telling}
        of_sample = [
            _Result(subject=subject, defense=name, answer=each)
            for name, each in told.items()
            if each is not None and each.flaw in {"bypass", "false_alarm"}
        ]
        results += of_sample
        if subject.is_attack:
            rule = _bypass(subject)
            worst[rule] = max(worst.get(rule, "0.0"), _level(subject)[1])
    shown = results[:_MOST]
    rules = sorted({each.rule for each in shown})
    run: Json = {
        "properties": {"found": len(results), "shown": len(shown)},
        "results": [_told(source, each, rules) for each in shown],
    }
    if all(map(_is_plain, rules)):
        run["tool"] = {"driver": {"rules": [_rule(rule, worst) for rule in rules]}}
    return {"version": "2.1.0", "runs": [run]}


def _chosen(
    source: Source, recounts: Mapping[str, Recount], answers: list[dict[int, Worst]]
) -> Iterator[tuple[Subject, int]]:
    """Return the samples worth reading in order, each with its place."""
    if not recounts:
        return
    samples = next(iter(recounts.values())).samples
    places = choose(samples, answers, _MOST)
    wanted = {samples.positions[place] for place in places}
    subjects = {each.position: each for each in source.subjects() if each.position in wanted}
    for place in places:
        yield subjects[samples.positions[place]], place


def _told(source: Source, result: _Result, rules: list[str]) -> Json:
    subject, is_bypass = result.subject, result.answer.flaw == "bypass"
    file = _file(source, subject.position)
    said: Json = {
        "level": _level(subject)[0] if is_bypass else "note",
        "kind": "fail",
        "properties": {
            "defense": result.defense,
            "severity": subject.facets["severity"] or None,
            "score": result.answer.score,
            "sha256": subject.sha256,
        },
    }
    place: Json = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(file, safe="/.-_~")},
            "region": {"startLine": 1},
        }
    }
    if _is_plain(f"{file}/{subject.id}"):
        name = {"name": subject.id, "fullyQualifiedName": f"{file}/{subject.id}"}
        place["logicalLocations"] = [name]
    if _is_plain(result.rule):
        key = f"{result.defense}\0{result.rule}\0{subject.sha256}"
        said["ruleId"] = result.rule
        said["partialFingerprints"] = {"guardmark/v1": sha256(key.encode()).hexdigest()}
    if all(map(_is_plain, rules)):
        said["ruleIndex"] = rules.index(result.rule)
    return said | {"locations": [place]}


def _bypass(subject: Subject) -> str:
    return f"bypass/{subject.facets['category'] or 'uncategorised'}"


def _level(subject: Subject) -> tuple[str, str]:
    """Return the level of a bypass and the number of its severity, medium where none is stated."""
    return _LEVELS.get(subject.facets["severity"], _LEVELS["medium"])


def _rule(rule: str, worst: Mapping[str, str]) -> Json:
    said: Json = {"id": rule}
    if rule == _FALSE_ALARM:
        return said | {"defaultConfiguration": {"level": "note"}}
    return said | {
        "defaultConfiguration": {"level": "error"},
        "properties": {"security-severity": worst[rule]},
    }


def _file(source: Source, position: int) -> str:
    """Return the file that a sample was read from, or its data set when that has several."""
    end = 0
    for data in source.manifest["data"]:
        end += data["attacks"] + data["benign"]
        if position < end:
            files = list(data["files"])
            return str(files[0]) if len(files) == 1 else str(data["name"])
    return str(source.manifest["name"])


def _is_plain(text: str) -> bool:
    """Tell whether a text is shown as it is; other signs are stripped before they are."""
    return text.isprintable() and " ".join(text.split()) == text
