"""Settings of a defense in processes: the command, its environment, its limits."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import Field, model_validator

from guardmark.config.deadline import CODE_TIMEOUT_S, TimedSettings
from guardmark.config.settings import Rate, Settings
from guardmark.core.errors import BadSettings
from guardmark.core.sample import View
from guardmark.defenses.answers import AnswerReader, ConfidenceMeaning, ScoreRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.config.settings import BuildContext

_ALWAYS_PASSED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
_SHORTEST_KEY: Final = 8
_WORKER: Final = Path(__file__).with_name("python_worker.py")

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class ProcessSettings(Settings):
    """What every defense in processes may be told."""

    workers: int = Field(1, ge=1, le=64)
    batch: int = Field(1, ge=1, le=4096)
    restart_after: int | None = Field(None, ge=1)
    reset: bool = False
    memory_mb: int | None = Field(None, ge=16)
    variables: list[VariableName] = Field(default_factory=list)
    warm_up: str | None = "Which ferry leaves at nine?"
    start_timeout_s: float = Field(CODE_TIMEOUT_S, gt=0, le=86_400)

    @model_validator(mode="after")
    def _one_text_between_resets(self) -> ProcessSettings:
        if self.reset and self.batch > 1:
            raise ValueError("reset goes with batch: 1, since it comes before each text")
        if self.restart_after is not None and self.batch > self.restart_after:
            raise ValueError("batch may not be larger than restart_after")
        return self

    @property
    def processes(self) -> int | None:
        """How many texts or batches are asked about at once; None where it is no process."""
        return self.workers


class CommandSettings(TimedSettings, ProcessSettings):
    """Asks a program of yours, in any language, by lines of JSON."""

    later: ClassVar[tuple[str, ...]] = ("timeout_s", "confidence")
    command: list[str] = Field(min_length=1)
    threshold: Rate | None = None
    score_range: ScoreRange = (0.0, 1.0)
    confidence: ConfidenceMeaning | None = None
    view: View = View.TEXT

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        program = self.command[0]
        executable: Path | str | None = shutil.which(program)
        where = "is not on the PATH"
        if "/" in program:
            executable, where = context.folder / program, "does not exist"
        if not executable or not Path(executable).exists():
            hint = "Next: install it, or name the program by its path"
            raise BadSettings([(("command", "0"), f"{program!r} {where}. {hint}.")])
        # An absolute path is part of the machine, as what is found on the PATH is.
        paths = [context.folder / word for word in self.command if not Path(word).is_absolute()]
        return defense_in_processes(
            name,
            self,
            context,
            command=self.command,
            files=tuple(path for path in paths if path.is_file()),
        )


def python_command(target: str, *, env: str | None, interpreter: str | None, folder: Path) -> Any:
    """Return the command that asks a Python function under another interpreter."""
    setting, program = "interpreter", interpreter or ""
    if env is not None:
        setting, program = "env", str(folder / env / "bin" / "python")
    command: Path | str = program
    if "/" in program:
        command = folder / program
    executable = shutil.which(command)
    if executable is None:
        hint = "Next: name one by its path"
        if env is not None:
            hint = f"Next: python3 -m venv {env}"
        raise BadSettings([((setting,), f"There is no Python interpreter {program!r}. {hint}.")])
    # Not resolved: an environment is known by the path of its interpreter.
    return [os.path.abspath(executable), str(_WORKER), target]  # noqa: PTH100


def defense_in_processes(
    name: str,
    settings: Any,
    context: BuildContext,
    *,
    command: Sequence[str],
    files: tuple[Path, ...],
) -> object:
    """Build a defense that asks processes."""
    if sys.platform == "win32":
        raise BadSettings([((), "A defense in a process of its own needs Linux or macOS.")])
    from guardmark.defenses.command import defense as parts
    from guardmark.defenses.command.process import ProcessRecipe

    recipe = ProcessRecipe(
        command=tuple(command),
        folder=context.folder,
        variables=_variables(settings.variables),
        memory_mb=settings.memory_mb,
        warm_up=settings.warm_up,
        start_timeout_s=settings.start_timeout_s,
        resets=settings.reset,
    )
    limits = parts.ProcessLimits(
        workers=settings.workers,
        timeout_s=settings.timeout_s,
        restart_after=settings.restart_after,
        resets=settings.reset,
    )
    pool = parts.ProcessPool(recipe, limits)
    reader = AnswerReader(
        threshold=settings.threshold,
        score_range=settings.score_range,
        confidence=settings.confidence,
        subject="the answer is",
    )
    common: dict[str, Any] = {"reader": reader, "view": settings.view, "files": files}
    if settings.batch > 1:
        return parts.CommandBatchDefense(name, pool, batch=settings.batch, **common)
    return parts.CommandDefense(name, pool, **common)


def _variables(names: Sequence[str]) -> dict[str, str]:
    """Return the few variables that every process gets, and those that are named."""
    from guardmark.net.redaction import KNOWN

    variables = {name: os.environ[name] for name in _ALWAYS_PASSED if name in os.environ}
    variables["PYTHONUNBUFFERED"] = "1"  # a line that waits in a buffer looks like a hang
    for index, name in enumerate(names):
        if name not in os.environ:
            message = f"{name} is not set. Set it for this shell: export {name}=..."
            raise BadSettings([(("variables", str(index)), message)])
        value = variables[name] = os.environ[name]
        # It may be a key, unless it is a switch or a path.
        if len(value) >= _SHORTEST_KEY and not Path(value).exists():
            KNOWN.hide(value, name)
    return variables
