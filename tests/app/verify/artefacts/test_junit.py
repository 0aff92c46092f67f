"""Every figure of `junit.xml` is counted a second time, and every limit judged again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up

from guardmark.app.verify.artefacts.gate import Check, recount_checks
from guardmark.app.verify.artefacts.junit import Case, check_junit, recount_cases
from guardmark.app.verify.columns import read_samples
from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.recount import read_recounts
from guardmark.app.verify.source import open_source
from guardmark.app.verify.summary import recount_summary

GUARD = """\
def check(text):
    if "7" in text:
        raise RuntimeError("seven")
    return (len(text) * 37 % 101) / 101
"""
MEASURED = (
    CONFIG
    + '  mine: {type: python, target: "guard.py:check", threshold: 0.5}\n'
    + "  open: {type: allow-all}\n"
    + "run: {on_error: block}\n"
    + "report: [json, junit]\n"
)
LIMITED = MEASURED + (
    "gate:\n"
    "  asr_upper: 0.45\n  fpr_upper: 0.5\n  max_malformed: 0.08\n  max_errors: 0.2\n"
    "  latency_p95_upper_ms: 0.0001\n"
    '  per_category: {"*": 0.7, jailbreak: 0.95, direct_injection: 0.1}\n'
)
NUMBER = re.compile(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d")
EXCEPTIONS = {'time="0"'}
"""What is no figure: a test of a limit takes no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A `junit.xml` and what it has to tell."""

    path: Path
    records: Path
    cases: list[Case]
    checks: list[Check] | None

    def findings(self, text: str | bytes) -> list[str]:
        """What is found where the file says something."""
        path = self.path.with_name("forged.xml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        comparer = Comparer()
        with open_source(self.records) as source:
            check_junit(path, source, self.cases, comparer)
        return [*map(str, comparer.findings)]

    def text(self) -> str:
        """What the file says."""
        return self.path.read_text(encoding="utf-8")


def measured(folder: Path, config: str, *, count: int, stated: dict[str, object]) -> Told:
    """Run three defenses and count what their JUnit XML has to tell."""
    set_up(folder, config, count=count)
    (folder / "guard.py").write_text(GUARD, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code in {0, 1, 5}, done.err
    records = folder / "out" / "records.sqlite"
    with open_source(records) as source:
        summary = recount_summary(source, stated)
        recounts = read_recounts(source, read_samples(source), stated)
        checks = recount_checks(source, summary, recounts)
    return Told(
        path=folder / "out" / "junit.xml",
        records=records,
        cases=recount_cases(summary, checks),
        checks=checks,
    )


RUNS = {"limits": (LIMITED, 180), "few samples": (LIMITED, 16), "no limits": (MEASURED, 60)}


@pytest.fixture(scope="module", params=RUNS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Runs whose limits are held, broken and open, and one without any."""
    config, count = RUNS[request.param]
    return measured(tmp_path_factory.mktemp("run"), config, count=count, stated={})


def test_both_counts_agree(told: Told) -> None:
    """Suites, cases, counts, what came of each limit, and the figures in each sentence."""
    assert told.findings(told.text()) == []


def test_every_figure_that_is_off_is_noticed(told: Told) -> None:
    """Number after number, wherever it stands in the file."""
    head, body = told.text().split("\n", 1)
    unnoticed = set()
    for number in NUMBER.finditer(body):
        forged = f"{body[: number.start()]}{changed(number.group())}{body[number.end() :]}"
        if not told.findings(f"{head}\n{forged}"):
            unnoticed.add(around(body, number))
    assert unnoticed <= EXCEPTIONS


def changed(digits: str) -> str:
    """Return a number of as many digits with another first one."""
    return f"{int(digits[0]) % 9 + 1}{digits[1:]}"


def around(text: str, number: re.Match[str]) -> str:
    """Return a number with the attribute or the words it stands in."""
    found = re.search(r'\w+="$', text[: number.start()])
    return f'{found.group()}{number.group()}"' if found else text[number.start() - 30 :][:50]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A run whose limits are held, broken and open."""
    config, count = RUNS["limits"]
    return measured(tmp_path_factory.mktemp("run"), config, count=count, stated={})


def test_limits_are_held_broken_and_open_in_what_is_tried(limited: Told) -> None:
    """The other tests of this file would else look at one kind of sentence."""
    found = limited.checks or []
    assert {check.standing for check in found} == {"held", "broken", "open"}
    assert {check.defense for check in found} == {"words", "mine"}, "no baseline is gated"
    assert {check.rule for check in found} == {
        *("asr_upper", "fpr_upper", "max_malformed", "max_errors"),
        *("latency_p95_upper_ms", "per_category"),
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("failure", "error"),
        ('name="asr_upper attacks"', 'name="fpr_upper attacks"'),
        ('classname="mine"', 'classname="words"'),
        ('name="guardmark journey"', 'name="guardmark another"'),
    ],
)
def test_words_that_carry_a_verdict_are_compared(limited: Told, old: str, new: str) -> None:
    """What came of a limit, which limit, whose, and of which run."""
    text = limited.text()
    assert old in text
    assert limited.findings(text.replace(old, new))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no XML",
        b"<testsuites",
        b"<html/>",
        b"\xff\xfe<testsuites/>",
        b'<!DOCTYPE t [<!ENTITY a "a">]><testsuites/>',
    ],
)
def test_what_is_no_junit_is_a_difference(told: Told, text: bytes) -> None:
    """No crash, and no entity is ever expanded."""
    assert told.findings(text) == ["forged.xml: says no JUnit XML; the records give test suites"]


def test_a_case_that_was_taken_out_is_noticed(told: Told) -> None:
    """Also where the counts at the head were made to match."""
    text = told.text()
    lines = text.splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if "<testcase" in line)
    assert told.findings("".join(lines[:first] + lines[first + 3 :]))
