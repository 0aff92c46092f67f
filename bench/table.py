"""The lines of the table, and the working folder they are measured in."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import data
from measure import command, middle, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FEWEST = 100  # more than are in flight at once
PATTERN = r"\b(ignore|disregard|forget)\b.{0,40}\b(previous|prior|above|earlier|all)\b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table.

    Attributes:
        target: Which target of the performance page.
        what: What was measured.
        floor: The floor, or None where the target is an absolute figure.
        guardmark: guardmark's figure.
        unit: Of both.
        ratio: guardmark's figure to the floor; the median over rounds.
        wanted: The target.
        is_met: Whether it is reached.
    """

    target: str
    what: str
    floor: float | None
    guardmark: float
    unit: str
    ratio: float | None
    wanted: str
    is_met: bool


class Bench:
    """A working folder, the number of rounds, and by how much sizes are divided."""

    def __init__(self, folder: Path, count: int, *, shrink: int = 1) -> None:
        self.folder = folder
        self.count = count
        self._shrink = shrink

    def size(self, count: int) -> int:
        """Return how many samples stand for some; fewer only where the bench is tried out."""
        return max(_FEWEST, count // self._shrink)

    def data(self, count: int) -> Path:
        """Return made-up data of some size."""
        path = self.folder / f"data-{count}.jsonl"
        return path if path.exists() else data.write(path, count)

    def fresh(self, name: str) -> Path:
        """Return an empty folder."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def config(self, name: str, source: Path, defense: dict[str, object], **more: object) -> Path:
        """Write a configuration (JSON is YAML)."""
        said = {
            "version": 1,
            "name": name,
            "data": [{"path": str(source)}],
            "defenses": {"guard": defense},
            "report": ["json"],
            **more,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(said), encoding="utf-8")
        return path

    def pattern(self, count: int, *, reports: Sequence[str] = ("json",)) -> Path:
        """Write the configuration of one regular expression."""
        defense = {"type": "pattern", "patterns": [PATTERN], "flags": ["I", "S"]}
        name = f"pattern-{count}-{'-'.join(reports)}"
        return self.config(name, self.data(count), defense, report=list(reports))

    def http(
        self, count: int, url: str, *, name: str = "http", mode: str = "loaded", **more: object
    ) -> Path:
        """Write the configuration of an HTTP service, 64 in flight unless isolated."""
        return self.config(
            name if mode == "isolated" else f"{name}-{count}",
            self.data(count),
            _checked_by(url),
            run={"concurrency": 64},
            latency={"warmup": 8 if mode == "isolated" else 64, "mode": mode},
            **more,
        )

    def guard_model(self, count: int, url: str) -> Path:
        """Write the configuration of a guard model behind a chat server, 64 in flight."""
        defense = {
            "type": "guard-model",
            "profile": "llama-guard-3",
            "base_url": f"{url}/v1",
            "model": "stand-in",
        }
        return self.config(
            f"guard-model-{count}",
            self.data(count),
            defense,
            run={"concurrency": 64},
            latency={"warmup": 64},
        )

    def pipeline(self, count: int, *, guard: str, model: str, judge: str) -> Path:
        """Write the configuration of three services, 64 in flight each."""
        chat = {"type": "chat", "model": "stand-in"}
        return self.config(
            f"pipeline-{count}",
            self.data(count),
            _checked_by(guard),
            pipeline={
                "guards": ["guard"],
                "model": {**chat, "base_url": f"{model}/v1", "system_prompt": "You teach."},
                "judges": [{**chat, "name": "judge", "base_url": f"{judge}/v1"}],
            },
            run={"concurrency": 64},
            latency={"warmup": 64},
        )

    def run(self, config: Path) -> list[str]:
        """Return the command that runs a configuration into an empty folder."""
        return command("run", config, "-o", self.fresh(f"out-{config.stem}") / "run")


def _checked_by(url: str) -> dict[str, object]:
    return {
        "type": "http",
        "url": f"{url}/check",
        "body": {"input": {"$input": "text"}},
        "blocked": "$.flagged",
        "score": "$.score",
    }


def relative(
    target: str,
    what: str,
    found: dict[str, list[float]],
    *,
    names: tuple[str, str],
    wanted: float,
    unit: str = "s CPU",
) -> Line:
    """Return the line of a ratio to a floor of the same rounds, which may not be passed."""
    name, base = names
    value = ratio(found, name, base)
    return Line(
        target=target,
        what=what,
        floor=middle(found, base),
        guardmark=middle(found, name),
        unit=unit,
        ratio=value,
        wanted=f"<= {wanted:g} x",
        is_met=value <= wanted,
    )


def absolute_beside(
    target: str,
    what: str,
    found: dict[str, list[float]],
    *,
    names: tuple[str, str],
    wanted: float,
    unit: str = "s CPU",
) -> Line:
    """Return the line of a figure that may not be passed, beside a floor of the same rounds."""
    line = relative(target, what, found, names=names, wanted=wanted, unit=unit)
    return replace(line, wanted=f"<= {wanted:g}", is_met=line.guardmark <= wanted)


def absolute(  # noqa: PLR0917 - a table's line, read as one
    target: str, what: str, value: float, unit: str, wanted: float
) -> Line:
    """Return the line of a figure that may not be passed."""
    return Line(
        target=target,
        what=what,
        floor=None,
        guardmark=value,
        unit=unit,
        ratio=None,
        wanted=f"<= {wanted:g}",
        is_met=value <= wanted,
    )


KEPT = Path(__file__).with_name("ratios.json")
"""What each line came to when it was last committed: its ratio, or its figure without a floor."""


def read_kept() -> dict[str, float]:
    """Read what was committed, by the name of the line."""
    if not KEPT.exists():
        return {}
    kept: dict[str, float] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def keep(lines: Sequence[Line]) -> None:
    """Put these lines in the place of those committed; lines that were not measured stay."""
    kept = read_kept()
    for line in lines:
        kept[_name(line)] = float(f"{_compared(line):.3g}")
    text = json.dumps(dict(sorted(kept.items())), indent=2)
    KEPT.write_text(f"{text}\n", encoding="utf-8")


def _name(line: Line) -> str:
    """Return what a line is kept under."""
    return f"{line.target} {line.what}, {line.unit}"


def _compared(line: Line) -> float:
    """Return what is compared between two rounds of different days: the ratio, if there is one."""
    if line.ratio is None:
        return line.guardmark
    return line.ratio


def head() -> None:
    """Print what stands above the table."""
    figures = f"{'floor':>10}{'guardmark':>11}  {'unit':11}{'ratio':>7}{'committed':>11}"
    print(f"{'':5}{'':37}{figures}  target")


def show(line: Line, *, kept: Mapping[str, float]) -> None:
    """Print a line of the table, beside the ratio (without a floor: the figure) last committed."""
    base = "" if line.floor is None else f"{line.floor:.3g}"
    share = "" if line.ratio is None else f"{line.ratio:.2f}"
    before = kept.get(_name(line))
    committed = "" if before is None else f"{before:.3g}"
    mark = "met" if line.is_met else "MISSED"
    print(
        f"{line.target:5}{line.what:37}{base:>10}{line.guardmark:>11.3g}  {line.unit:11}"
        f"{share:>7}{committed:>11}  {line.wanted} {mark}",
        flush=True,
    )
