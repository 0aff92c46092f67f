"""A plain Python function as a defense: how it is found by name, called and read."""

from __future__ import annotations

import asyncio
import inspect
import sys
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from guardmark.config.settings import Rate
from guardmark.core.errors import BadSettings, ConfigError, did_you_mean
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, Evidence, Outcome, ScoreKind
from guardmark.core.sample import Prompt, View
from guardmark.defenses.baseline import NOTHING_SHOWN
from guardmark.defenses.deadline import CODE_TIMEOUT_S, TimedSettings, overrun_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guardmark.config.settings import BuildContext


_IMPORT_FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError),
    *(OSError, RuntimeError, SyntaxError, TypeError, ValueError),
)
"""What a module of the user may raise while it is imported."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionDefense:
    """A function that answers at once."""

    name: str
    function: Callable[..., object]
    threshold: float | None = None
    view: View = View.TEXT
    whole_prompt: bool = False
    files: tuple[Path, ...] = ()
    timeout_s: float | None = CODE_TIMEOUT_S

    def decide_now(self, prompt: Prompt) -> Decision:
        """Call the function on one prompt."""
        shown = prompt if self.whole_prompt else prompt.shown(self.view)
        if shown is None:
            return NOTHING_SHOWN[self.view]
        return read_answer(self.function(shown), threshold=self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AsyncFunctionDefense:
    """A function that has to be awaited."""

    name: str
    function: Callable[..., Any]
    threshold: float | None = None
    view: View = View.TEXT
    whole_prompt: bool = False
    files: tuple[Path, ...] = ()
    timeout_s: float | None = CODE_TIMEOUT_S

    async def decide(self, prompt: Prompt) -> Decision:
        """Await the function on one prompt."""
        shown = prompt if self.whole_prompt else prompt.shown(self.view)
        if shown is None:
            return NOTHING_SHOWN[self.view]
        clock = asyncio.timeout(self.timeout_s)
        try:
            async with clock:
                answer = await self.function(shown)
        except TimeoutError as error:
            if clock.expired() and self.timeout_s is not None:
                raise TimeoutError(overrun_message(self.timeout_s)) from error
            raise
        return read_answer(answer, threshold=self.threshold)


def defense_from(
    function: Callable[..., object],
    *,
    name: str = "",
    threshold: float | None = None,
    view: View = View.TEXT,
    files: tuple[Path, ...] = (),
    timeout_s: float | None = CODE_TIMEOUT_S,
) -> FunctionDefense | AsyncFunctionDefense:
    """Make a defense of a plain function."""
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be in [0, 1], got {threshold}")
    whole_prompt = _takes_prompt(function)
    kind = AsyncFunctionDefense if _is_async(function) else FunctionDefense
    return kind(
        name=name or str(getattr(function, "__name__", type(function).__name__)),
        function=function,
        threshold=threshold,
        view=view,
        whole_prompt=whole_prompt,
        files=files,
        timeout_s=timeout_s,
    )


def read_answer(answer: object, *, threshold: float | None) -> Decision:
    """Read what a function returned."""
    if isinstance(answer, Decision):
        return answer
    if not isinstance(answer, bool | int | float) and hasattr(answer, "item"):
        answer = _unwrapped(answer)
    if isinstance(answer, bool):
        return BLOCKED if answer else ALLOWED
    if isinstance(answer, int | float):
        return _from_score(float(answer), threshold)
    if inspect.iscoroutine(answer):
        answer.close()  # or Python would warn, far from here, that it was never awaited
    return _malformed(
        f"the function returned {type(answer).__name__}; "
        "expected True (block), False (allow), a risk in [0, 1] or a Decision"
    )


def _from_score(score: float, threshold: float | None) -> Decision:
    if not 0 <= score <= 1:  # also true of not-a-number
        return _malformed(f"the function returned {score!r}; a risk lies in [0, 1]")
    if threshold is None:
        return _malformed(f"the function returned the risk {score!r}, but no threshold is set")
    outcome = Outcome.BLOCK if score >= threshold else Outcome.ALLOW
    return Decision(outcome=outcome, score=score, score_kind=ScoreKind.SELF_REPORTED)


def _malformed(message: str) -> Decision:
    return Decision(outcome=Outcome.MALFORMED, evidence=Evidence(message=message))


def _unwrapped(answer: object) -> object:
    try:
        return answer.item()  # type: ignore[attr-defined]  # a NumPy scalar, or an array of one
    except (TypeError, ValueError):
        return answer


def _is_async(function: Callable[..., object]) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    # An object with an async __call__ is no coroutine function itself.
    return inspect.iscoroutinefunction(getattr(type(function), "__call__", None))  # noqa: B004


def _takes_prompt(function: Callable[..., object]) -> bool:
    """Whether the one parameter is annotated as a Prompt."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-ins do not tell their parameters
        return False
    try:
        signature.bind("text")
    except TypeError as error:
        raise TypeError(f"a defense is called with one argument, but: {error}") from error
    first = next(iter(signature.parameters.values()))
    annotation = first.annotation
    if isinstance(annotation, str):
        return annotation.strip("\"'").rpartition(".")[2] == "Prompt"
    return annotation is Prompt


def load_target(target: str, *, folder: Path) -> Callable[..., object]:
    """Import a function by name."""
    origin, colon, attribute = target.rpartition(":")
    if not colon or not origin or not attribute:
        raise ConfigError(
            f"The target {target!r} names no function: write module:name or file.py:name."
        )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    module = _from_file(origin, folder) if origin.endswith(".py") else _from_name(origin, folder)
    found: object = module
    for step in attribute.split("."):
        if not hasattr(found, step):
            known = [name for name in vars(module) if not name.startswith("_")]
            raise ConfigError(f"{origin} has no {attribute!r}.{did_you_mean(attribute, known)}")
        found = getattr(found, step)
    if not callable(found):
        raise ConfigError(f"{target} is a {type(found).__name__}, not a function.")
    return found


def source_of(target: str, *, folder: Path) -> tuple[Path, ...]:
    """Return the file a loaded target stands in, for the fingerprint of the run."""
    origin = target.rpartition(":")[0]
    if origin.endswith(".py"):
        return (folder / origin,)
    file = getattr(sys.modules.get(origin), "__file__", None)
    return (Path(file),) if file else ()


def _from_name(name: str, folder: Path) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not (name + ".").startswith(error.name + "."):
            raise _broken(name, error) from error
        raise ConfigError(
            f"No module is called {name!r}; looked in {folder} and in what is installed "
            f"for {sys.executable}.\nInstall it there, or name the file: path/to/file.py:name."
        ) from error
    except _IMPORT_FAULTS as error:
        raise _broken(name, error) from error


def _from_file(name: str, folder: Path) -> ModuleType:
    path = (folder / name).resolve()
    if not path.is_file():
        raise ConfigError(f"The target's file {path} does not exist.")
    # One module a file, under a name nothing else can have; dataclasses look it up there.
    known_as = f"guardmark_target_{sha256(str(path).encode()).hexdigest()[:16]}"
    if known_as in sys.modules:
        return sys.modules[known_as]
    spec = spec_from_file_location(known_as, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"The target's file {path} cannot be imported.")
    module = module_from_spec(spec)
    sys.modules[known_as] = module
    try:
        spec.loader.exec_module(module)
    except _IMPORT_FAULTS as error:
        del sys.modules[known_as]
        raise _broken(name, error) from error
    return module


def _broken(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{name} raised {type(error).__name__} while it was imported: {error}\n"
        f"Try it alone: {sys.executable} {name if name.endswith('.py') else '-m ' + name}"
    )


class PythonSettings(TimedSettings):
    """Calls a Python function: `module:name` or `file.py:name`."""

    target: str = Field(min_length=3)
    threshold: Rate | None = None
    view: View = View.TEXT

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        try:
            function = load_target(self.target, folder=context.folder)
        except ConfigError as error:
            raise BadSettings([(("target",), str(error))]) from error
        files = source_of(self.target, folder=context.folder)
        try:
            return defense_from(
                function,
                name=name,
                threshold=self.threshold,
                view=self.view,
                files=files,
                timeout_s=self.timeout_s,
            )
        except TypeError as error:
            raise BadSettings([(("target",), f"{self.target}: {error}.")]) from error
