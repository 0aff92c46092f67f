"""The five golden runs: which commands make each one, and which commands tell it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).resolve().parent
INPUTS: Final = HOME / "inputs"
FROZEN: Final = HOME / "frozen"
FORMATS: Final = "html,md,json,csv,junit,sarif"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command: its words, where its standard output is kept, its exit code.

    Attributes:
        words: What follows `guardmark` on the command line.
        printed: Name of the file under `printed/`; empty when the output is not compared.
        code: The exit code that it must end with.
    """

    words: tuple[str, ...]
    printed: str = ""
    code: int = 0

    @property
    def builds_parts(self) -> bool:
        """Whether the command builds defenses and models, and so needs a process of its own."""
        return (
            self.words[0] in {"adapt", "judge", "matrix", "run"} and "--quality" not in self.words
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenRun:
    """A configuration that is run once, frozen, and told again from its records.

    Attributes:
        name: Its folder below `inputs` and `frozen`.
        making: Commands that call defenses, models and judges.
        retelling: Commands that read records only, or find everything answered already.
    """

    name: str
    making: tuple[Step, ...]
    retelling: tuple[Step, ...]


def step(line: str, printed: str = "", *, code: int = 0) -> Step:
    """Return the step that a line of words means."""
    return Step(words=tuple(line.split()), printed=printed, code=code)


def _read(*, slices: str) -> tuple[Step, ...]:
    """Return what every run is asked: its reports, samples, comparisons, slices and exports."""
    return (
        step(f"report run -f {FORMATS}", "report.txt"),
        step("compare run", "compare.txt"),
        step("compare run --json", "compare.json"),
        step("compare run --markdown --no-texts", "compare.md"),
        step("show run --bypasses", "show-bypasses.txt"),
        step("show run --different --full --limit 5", "show-different.txt"),
        step("show run --json --limit 5", "show.jsonl"),
        step(f"stability run {slices} --seeds 3", "stability.txt"),
        step("export run --to csv,jsonl,svg", "export.txt"),
    )


def _gate(policy: str, *, code: int) -> tuple[Step, ...]:
    """Return the gate in its four forms, against a policy file or the run's own limits."""
    given = f"gate run --policy {policy}" if policy else "gate run"
    return (
        step(f"{given} --junit gate.xml", "gate.txt", code=code),
        step(f"{given} --json", "gate.json", code=code),
        step(f"{given} --markdown", "gate.md", code=code),
    )


RUNS: Final = (
    GoldenRun(
        name="demo",
        making=(step("run --limit 60 -o run"),),
        retelling=(
            step("report run --threshold ngram=0.9 --no-texts -f json --json", "threshold.json"),
            step("report run --choose ngram=0.3", "choose.txt"),
            step("report run -f json --json", "report.json"),
            *_read(slices="--attacks 8 --benign 6"),
        ),
    ),
    GoldenRun(
        name="grouped",
        making=(step("run grouped.yaml -o run"),),
        retelling=(
            step("data check rows.jsonl", "data-check.txt"),
            step("report run --threshold scored=0.7 -f json --json", "threshold.json"),
            *_read(slices="--attacks 4 --benign 3"),
            step("show run --errors", "show-errors.txt"),
            step("show run --malformed", "show-malformed.txt"),
            *_gate("policy.yaml", code=5),
        ),
    ),
    GoldenRun(
        name="pipeline",
        making=(
            step("run pipeline.yaml -o run"),
            step("judge run --config judges.yaml --human-labels labels.csv", "judge.txt"),
            step("matrix matrix.yaml -o matrix"),
        ),
        retelling=(
            *_read(slices="--attacks 3 --benign 2"),
            step("export run --to minorbench,inspect", "export-layouts.txt"),
            step("judge run --quality", "judge-quality.txt"),
            step("audit run -o audit.csv --count 20 --with-verdicts", "audit.txt"),
            *_gate("policy.yaml", code=5),
            step("matrix matrix.yaml -o matrix", "matrix.txt"),
            step("compare matrix/lax matrix/strict", "compare-runs.txt"),
            step("compare matrix/lax matrix/strict --json", "compare-runs.json"),
            step(
                "gate matrix/strict --policy regression.yaml --baseline matrix/lax",
                "gate-regression.txt",
                code=1,
            ),
        ),
    ),
    GoldenRun(
        name="stopped",
        making=(step("run stopped.yaml -o run", code=1),),
        retelling=(*_read(slices="--attacks 8 --benign 6"), *_gate("", code=1)),
    ),
    GoldenRun(
        name="adaptive",
        making=(
            step("adapt adaptive.yaml --budget 16 --canaries 2 -o run"),
            step("judge run --human-labels labels.csv", "judge.txt"),
        ),
        retelling=(
            step("adapt run --config adaptive.yaml --budget 16 --canaries 2", "adapt.txt"),
            *_read(slices="--attacks 3 --benign 2"),
            step("audit run --what bypasses -o bypasses.csv --with-verdicts", "audit.txt"),
        ),
    ),
)
