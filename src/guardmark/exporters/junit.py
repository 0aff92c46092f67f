"""A gate, or the headline figures of a run, as JUnit XML: one test case a limit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from guardmark.analysis.gate import GateStatus
from guardmark.reports.chapters.gate import check_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.analysis.gate import GateCheck, GateResult

_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_RUN: Final = "run"
_HEAD: Final = "guardmark.records_head"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlimited:
    """A figure that no limit is set for; told as a skipped test."""

    defense: str
    figure: str
    text: str


def gate_junit(result: GateResult, *, run: str, created_utc: str, head: str = "") -> str:
    """Write a gate as JUnit XML."""
    return _document(map(_case, result.checks), run=run, created_utc=created_utc, head=head)


def figures_junit(
    figures: Sequence[Unlimited], *, run: str, created_utc: str, head: str = ""
) -> str:
    """Write figures without limits as JUnit XML."""
    cases = []
    for each in figures:
        cases.append(ET.Element("testcase", classname=_legal(each.defense), name=each.figure))
        ET.SubElement(cases[-1], "skipped", message=_legal(f"no limit is set; {each.text}"))
    return _document(cases, run=run, created_utc=created_utc, head=head)


def _case(check: GateCheck) -> ET.Element:
    sentence = _legal(check_sentence(check))
    name = _legal(f"{check.rule} {check.subject}")
    case = ET.Element("testcase", classname=_legal(check.defense or _RUN), name=name)
    if check.standing is GateStatus.BROKEN:
        ET.SubElement(case, "failure", message=sentence, type=check.rule).text = sentence
    elif check.standing is GateStatus.OPEN:
        ET.SubElement(case, "error", message=sentence, type="undecided").text = sentence
    else:
        ET.SubElement(case, "system-out").text = sentence
    return case


def _document(every: Iterable[ET.Element], *, run: str, created_utc: str, head: str) -> str:
    suites: dict[str, list[ET.Element]] = {}
    for case in every:
        case.set("time", "0")
        suites.setdefault(case.attrib["classname"], []).append(case)
    root = ET.Element("testsuites", name=_legal(f"guardmark {run}"), time="0")
    root.attrib.update(_counts(list(chain(*suites.values()))))
    stamp = _legal(created_utc.removesuffix("Z"))
    for name, cases in suites.items():
        suite = ET.SubElement(root, "testsuite", name=name, timestamp=stamp, time="0")
        suite.attrib.update(_counts(cases))
        if head:
            properties = ET.SubElement(suite, "properties")
            ET.SubElement(properties, "property", name=_HEAD, value=head)
        suite.extend(cases)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(cases: list[ET.Element]) -> dict[str, str]:
    tags = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    found = {n: sum(case.find(tag) is not None for case in cases) for n, tag in tags.items()}
    return {name: str(count) for name, count in {"tests": len(cases), **found}.items()}


def _legal(text: str) -> str:
    """Replace what XML cannot hold, escaped or not."""
    return _ILLEGAL.sub("\ufffd", text)
