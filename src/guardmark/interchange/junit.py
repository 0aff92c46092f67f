"""A gate, or the headline figures of a run, as JUnit XML: one test case a limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.analysis.gate import GateStatus
from guardmark.core.values import dataclass
from guardmark.reports.chapters.gate import check_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.gate import GateResult

_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS: Final = {GateStatus.BROKEN: "failure", GateStatus.OPEN: "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlimited:
    """A figure that no limit is set for; told as a skipped test."""

    defense: str
    figure: str
    text: str


class _Case(NamedTuple):
    suite: str
    name: str
    tag: str
    sentence: str
    type: str = ""


def gate_junit(result: GateResult, *, run: str, created_utc: str, head: str = "") -> str:
    """Write a gate as JUnit XML."""
    cases = []
    for each in result.checks:
        tag, name = _TAGS.get(each.standing, "system-out"), f"{each.rule} {each.subject}"
        kind = each.rule if tag == "failure" else "undecided"
        cases.append(_Case(each.defense or "run", name, tag, check_sentence(each), kind))
    return _document(cases, run=run, created_utc=created_utc, head=head)


def figures_junit(
    figures: Sequence[Unlimited], *, run: str, created_utc: str, head: str = ""
) -> str:
    """Write figures without limits as JUnit XML."""
    text = "no limit is set; {}".format
    cases = [_Case(each.defense, each.figure, "skipped", text(each.text)) for each in figures]
    return _document(cases, run=run, created_utc=created_utc, head=head)


def _document(cases: list[_Case], *, run: str, created_utc: str, head: str) -> str:
    from jinja2 import Environment  # on use: a run without this report needs no template

    environment = Environment(autoescape=True, keep_trailing_newline=True, finalize=_legal)
    text = Path(__file__).with_name("junit.xml.jinja").read_text(encoding="utf-8")
    stamp = created_utc.removesuffix("Z")
    return environment.from_string(text).render(cases=cases, run=run, stamp=stamp, head=head)


def _legal(value: object) -> object:
    """Replace what XML cannot hold, escaped or not."""
    if type(value) is str:
        return _ILLEGAL.sub("\ufffd", value)
    return value
