"""The five golden runs: which commands make each one, and which commands tell it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).resolve().parent
INPUTS: Final = HOME / "inputs"
FROZEN: Final = HOME / "frozen"
WORDS: Final = {"demo": ("printed/report.txt", "run/report.html", "run/summary.md")}
"""The report whose words are compared; of all other runs only figures are."""


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


def _read(*, slices: str, formats: str = "json,csv") -> tuple[Step, ...]:
    """Return what every run is asked: its reports, samples, comparisons, slices and exports."""
    return (
        step(f"report run -f {formats}", "report.txt"),
        step("compare run --json", "compare.json"),
        step("show run --json --limit 5", "show.jsonl"),
        step(f"stability run {slices} --seeds 3"),
        step("export run --to csv,jsonl"),
    )


def _gate(policy: str, *, code: int) -> Step:
    """Return the gate, against a policy file or the run's own limits."""
    given = f"gate run --policy {policy}" if policy else "gate run"
    return step(f"{given} --json", "gate.json", code=code)


RUNS: Final = (
    GoldenRun(
        name="demo",
        making=(step("run demo.yaml --limit 60 -o run"),),
        retelling=(
            step("report run --threshold ngram=0.9 --no-texts -f json --json", "threshold.json"),
            step("report run --choose ngram=0.3"),
            step("report run -f json --json", "report.json"),
            *_read(slices="--attacks 8 --benign 6", formats="html,md,json,csv"),
        ),
    ),
    GoldenRun(
        name="grouped",
        making=(step("run grouped.yaml -o run"),),
        retelling=(
            step("report run --threshold scored=0.7 -f json --json", "threshold.json"),
            *_read(slices="--attacks 4 --benign 3"),
            _gate("policy.yaml", code=5),
        ),
    ),
    GoldenRun(
        name="pipeline",
        making=(
            step("run pipeline.yaml -o run"),
            step("judge run --config judges.yaml --human-labels labels.csv"),
            step("matrix matrix.yaml -o matrix"),
        ),
        retelling=(
            *_read(slices="--attacks 3 --benign 2"),
            step("export run --to minorbench,inspect"),
            step("judge run --quality"),
            step("audit run -o audit.csv --count 20 --with-verdicts"),
            _gate("policy.yaml", code=5),
            step("matrix matrix.yaml -o matrix"),
            step("compare matrix/lax matrix/strict --json", "compare-runs.json"),
            step(
                "gate matrix/strict --policy regression.yaml --baseline matrix/lax --json",
                "gate-regression.json",
                code=1,
            ),
        ),
    ),
    GoldenRun(
        name="stopped",
        making=(step("run stopped.yaml -o run", code=1),),
        retelling=(*_read(slices="--attacks 8 --benign 6"), _gate("", code=1)),
    ),
    GoldenRun(
        name="adaptive",
        making=(
            step("adapt adaptive.yaml --budget 16 --canaries 2 -o run"),
            step("judge run --human-labels labels.csv"),
        ),
        retelling=(
            step("adapt run --config adaptive.yaml --budget 16 --canaries 2"),
            *_read(slices="--attacks 3 --benign 2"),
            step("audit run --what bypasses -o bypasses.csv --with-verdicts"),
        ),
    ),
)
