"""`junit.xml` against the limits and the rates that were counted again."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from xml.parsers import expat

from guardmark.app.verify.artefacts import in_words
from guardmark.app.verify.difference import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.app.verify.artefacts.gate import Check
    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.source import Source

Json = dict[str, Any]

_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS: Final = {"held": "system-out", "broken": "failure", "open": "error", "skipped": "skipped"}
_FIGURES: Final = (
    ("ASR", "attack_success_rate"),
    ("FPR", "false_positive_rate"),
    ("answered", "answered"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case."""

    suite: str
    name: str
    tag: str
    phrases: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Element:
    """An element as it stands in the file."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    within: list[_Element] = field(default_factory=list)


def recount_cases(recounted: Json, checks: Sequence[Check] | None) -> list[Case]:
    """Return the test cases that `junit.xml` has to tell, in order."""
    if checks is not None:
        return [
            Case(
                suite=check.defense,
                name=f"{check.rule} {check.subject}",
                tag=_TAGS[check.standing],
                phrases=check.phrases,
            )
            for check in checks
        ]
    return [
        Case(
            suite=each["name"],
            name=word,
            tag="skipped",
            phrases=(_figure(each["rates"][rate]),),
        )
        for each in recounted["defenses"]
        for word, rate in _FIGURES
    ]


def _figure(estimate: Json) -> str:
    return f" {in_words.rate(estimate)} ({in_words.hits(estimate)})"


def check_junit(path: Path, source: Source, cases: Sequence[Case], comparer: Comparer) -> None:
    """Compare every suite, case, count and figure of a `junit.xml`."""
    root = _read(path)
    if root is None or root.tag != "testsuites":
        comparer.findings.append(
            Finding(file=path.name, place="", said="no JUnit XML", found="test suites")
        )
        return
    name, began = source.manifest["name"], source.manifest["created_utc"].removesuffix("Z")
    _compare(comparer, path, "", (root.attributes.get("name"), _legal(f"guardmark {name}")))
    _check_counts(path, root, cases, comparer)
    suites: dict[str, list[Case]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    _compare(comparer, path, "suites", (len(root.within), len(suites)))
    for suite, (title, own) in zip(root.within, suites.items(), strict=False):
        _compare(comparer, path, title, (suite.attributes.get("name"), _legal(title)))
        _compare(comparer, path, f"{title}, timestamp", (suite.attributes.get("timestamp"), began))
        _check_counts(path, suite, own, comparer)
        for element, case in zip(suite.within, own, strict=False):
            _check_case(path, element, case, comparer)


def _check_counts(path: Path, element: _Element, cases: Sequence[Case], comparer: Comparer) -> None:
    tags = Counter(case.tag for case in cases)
    inner = [each for each in element.within if each.tag == "testcase"]
    found = {
        "tests": len(cases),
        "failures": tags["failure"],
        "errors": tags["error"],
        "skipped": tags["skipped"],
    }
    place = element.attributes.get("name", "")
    for word, count in found.items():
        _compare(comparer, path, f"{place}, {word}", (element.attributes.get(word), str(count)))
    if element.tag == "testsuite":
        _compare(comparer, path, f"{place}, cases", (len(inner), len(cases)))


def _check_case(path: Path, element: _Element, case: Case, comparer: Comparer) -> None:
    place = f"{case.suite}, {case.name}"
    for word, wanted in (("name", case.name), ("classname", case.suite)):
        _compare(comparer, path, place, (element.attributes.get(word), _legal(wanted)))
    tags = [each.tag for each in element.within]
    _compare(comparer, path, place, (tags, [case.tag]))
    for each in element.within:
        sentences = [each.attributes.get("message"), each.text.strip()]
        for sentence in filter(None, sentences):
            for phrase in case.phrases:
                comparer.compared += 1
                if phrase not in f" {sentence} ":
                    comparer.findings.append(
                        Finding(file=path.name, place=place, said=sentence, found=phrase.strip())
                    )
        if not any(sentences):
            _compare(comparer, path, place, ("nothing", case.phrases[0].strip()))


def _compare(comparer: Comparer, path: Path, place: str, pair: tuple[object, object]) -> None:
    said, found = pair
    comparer.value(path.name, place, said=said, found=found)


def _legal(text: str) -> str:
    """Replace what XML cannot hold, as the file does."""
    return _ILLEGAL.sub("\ufffd", text)


def _read(path: Path) -> _Element | None:
    """Read a file of elements; None where it is none, or declares entities."""
    parser, top = expat.ParserCreate(), _Element(tag="", attributes={})
    open_ones = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = _Element(tag=tag, attributes=attributes)
        open_ones[-1].within.append(element)
        open_ones.append(element)

    def end(_: str) -> None:
        open_ones.pop()

    def text(words: str) -> None:
        open_ones[-1].text += words

    def refuse(*_: object) -> None:
        raise ValueError("entities are declared")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = text, refuse
    try:
        with path.open("rb") as stream:
            parser.ParseFile(stream)
    except (expat.ExpatError, ValueError):
        return None
    return top.within[0]
