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
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import Field, model_validator

from guardmark.config.deadline import CODE_TIMEOUT_S, TimedSettings, overrun_message
from guardmark.config.settings import Rate
from guardmark.core.errors import BadSettings, ConfigError, did_you_mean
from guardmark.core.limits import MIB, MOST_PROGRAM_BYTES
from guardmark.core.protocols import Capabilities
from guardmark.core.sample import Prompt, View
from guardmark.defenses.answers import (
    USUAL_READER,
    AnswerReader,
    AssumedThreshold,
    ConfidenceMeaning,
    ScoreRange,
    unless_same,
)
from guardmark.defenses.baseline import NOTHING_SHOWN
from guardmark.defenses.command.settings import (
    ProcessSettings,
    defense_in_processes,
    python_command,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import Decision


_IMPORT_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a module of the user may raise while it is imported."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Function:
    """What a function is asked and how its answer is read, both ways it is called."""

    name: str
    function: Callable[..., Any]
    reader: AnswerReader = USUAL_READER
    view: View = View.TEXT
    whole_prompt: bool = False
    files: tuple[Path, ...] = ()
    timeout_s: float | None = CODE_TIMEOUT_S

    @property
    def capabilities(self) -> Capabilities:
        """What is stated of it."""
        return Capabilities(
            view=self.view,
            timeout_s=self.timeout_s,
            threshold=self.reader.threshold,
            files=self.files,
        )

    def shown(self, prompt: Prompt) -> Prompt | str | None:
        """Return what the function is given of a prompt; None where its view shows nothing."""
        if self.whole_prompt:
            return prompt
        return prompt.shown(self.view)


class FunctionDefense(_Function):
    """A function that answers at once."""

    __slots__ = ()

    def decide(self, prompt: Prompt) -> Decision:
        """Call the function on one prompt."""
        shown = self.shown(prompt)
        if shown is None:
            return NOTHING_SHOWN[self.view]
        decision = self.reader.read(self.function(shown))
        if decision.text is None:
            return decision
        return unless_same(decision, shown)


class AsyncFunctionDefense(_Function):
    """A function that has to be awaited."""

    __slots__ = ()

    async def decide(self, prompt: Prompt) -> Decision:
        """Await the function on one prompt."""
        shown = self.shown(prompt)
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
        return unless_same(self.reader.read(answer), shown)


def defense_from(  # noqa: PLR0913 - what a configuration can state of a function, by keyword
    subject: object,
    *,
    name: str = "",
    threshold: float | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    confidence: ConfidenceMeaning | None = None,
    view: View = View.TEXT,
    files: tuple[Path, ...] = (),
    timeout_s: float | None = CODE_TIMEOUT_S,
    block_labels: Sequence[str] = (),
    assumed: AssumedThreshold | None = None,
) -> FunctionDefense | AsyncFunctionDefense:
    """Make a defense of a plain function, or of an object that other libraries ask."""
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be in [0, 1], got {threshold}")
    function = function_of(subject, block_labels=block_labels)
    whole_prompt = _takes_prompt(function)
    called = getattr(type(function), "__call__", None)  # noqa: B004 - an object may have an async one
    kind: type[FunctionDefense | AsyncFunctionDefense] = FunctionDefense
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        kind = AsyncFunctionDefense
    return kind(
        name=name or str(getattr(subject, "__name__", type(subject).__name__)),
        function=function,
        reader=AnswerReader(
            threshold=threshold,
            score_range=score_range,
            confidence=confidence,
            block_labels=tuple(block_labels),
            assumed=assumed,
        ),
        view=view,
        whole_prompt=whole_prompt,
        files=files,
        timeout_s=timeout_s,
    )


def function_of(subject: object, *, block_labels: Sequence[str] = ()) -> Callable[..., object]:
    """Return what is called: the function itself, or the method of an object that decides.

    That is `evaluate` of a class or an object, `validate` or `scan` of a guardrail, `invoke` of a
    LangChain runnable, and the probabilities of a scikit-learn estimator.
    """
    evaluate = getattr(subject, "evaluate", None)
    if isinstance(subject, type) and callable(evaluate):
        function: Callable[..., object] = subject().evaluate
        return function
    if callable(subject):
        return subject
    if callable(evaluate):
        return cast("Callable[..., object]", evaluate)
    if callable(getattr(subject, "predict", None)):
        return estimator_function(subject, block_labels=block_labels)
    for method in _METHODS:
        called = getattr(subject, method, None)
        if callable(called):
            return cast("Callable[..., object]", called)
    kind = type(subject).__name__
    if hasattr(subject, "decide") or hasattr(subject, "decide_batch"):
        lacking = "name"
        if hasattr(subject, "name"):
            lacking = "batch_limits"
        raise TypeError(f"a {kind} decides and lacks {lacking}, as defenses have")
    raise TypeError(f"a {kind} is not a function and has no evaluate")


_METHODS = ("validate", "scan", "invoke", "check")
"""Methods from text to an answer, by which objects of other libraries are asked."""

_ATTACK_CLASSES = frozenset(
    {"1", "true", "attack", "unsafe", "injection", "malicious", "jailbreak"}
)


def estimator_function(
    estimator: Any, *, block_labels: Sequence[str] = ()
) -> Callable[[str], object]:
    """Ask a scikit-learn estimator: the probability of what blocks, or else its class."""
    classes = [str(label) for label in getattr(estimator, "classes_", ())]
    wanted = {label.casefold() for label in block_labels} or _ATTACK_CLASSES
    blocking = []
    for position, name in enumerate(classes):
        if name.casefold() in wanted:
            blocking.append(position)
    if not blocking or len(blocking) == len(classes):
        raise TypeError(
            f"which class of this {type(estimator).__name__} blocks is not known "
            f"({', '.join(classes) or 'it has no classes_: fit it first'}); "
            "name the classes of attacks with block_labels"
        )
    if callable(getattr(estimator, "predict_proba", None)):

        def risk(text: str) -> float:
            (row,) = estimator.predict_proba([text])
            return float(min(1.0, sum(row[position] for position in blocking)))

        return risk

    def is_blocked(text: str) -> bool:
        (name,) = estimator.predict([text])
        return classes.index(str(name)) in blocking

    return is_blocked


def _takes_prompt(function: Callable[..., object]) -> bool:
    """Tell whether the one parameter is annotated as a Prompt; several are refused."""
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


def load_target(target: str, *, folder: Path) -> object:
    """Import a function, or something with `evaluate`, by name."""
    origin, colon, attribute = target.rpartition(":")
    if not colon or not origin or not attribute:
        raise ConfigError(
            f"The target {target!r} names no function: write module:name or file.py:name."
        )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    if origin.endswith(".py"):
        module = _from_file(origin, folder)
    else:
        module = _from_name(origin, folder)
    function: object = module
    for step in attribute.split("."):
        if not hasattr(function, step):
            known = [name for name in vars(module) if not name.startswith("_")]
            raise ConfigError(f"{origin} has no {attribute!r}.{did_you_mean(attribute, known)}")
        function = getattr(function, step)
    is_object = hasattr(function, "evaluate") or hasattr(function, "apply")
    if not callable(function) and not is_object:
        raise ConfigError(f"{target} is a {type(function).__name__}, not a function.")
    return function


def source_of(target: str, *, folder: Path) -> tuple[Path, ...]:
    """Return the file a loaded target stands in, for the fingerprint of the run."""
    origin = target.rpartition(":")[0]
    if origin.endswith(".py"):
        return (folder / origin,)
    file = getattr(sys.modules.get(origin), "__file__", None)
    if not file:
        return ()
    return (Path(file),)


def _from_name(name: str, folder: Path) -> ModuleType:
    """Import an installed module, or one in the folder of the configuration."""
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


def require_program(path: Path) -> None:
    """Refuse a path that leads to no Python file, or to one that no person wrote."""
    if not path.is_file():
        raise ConfigError(f"The target's file {path} does not exist.")
    if path.stat().st_size > MOST_PROGRAM_BYTES:
        most = MOST_PROGRAM_BYTES // MIB
        raise ConfigError(f"The target's file {path} has more than {most} MiB.")


def _from_file(name: str, folder: Path) -> ModuleType:
    """Import a file, once."""
    path = (folder / name).resolve()
    require_program(path)
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
    arguments = f"-m {name}"
    if name.endswith(".py"):
        arguments = name
    return ConfigError(
        f"{name} raised {type(error).__name__} while it was imported: {error}\n"
        f"Try it alone: {sys.executable} {arguments}"
    )


class PythonSettings(TimedSettings, ProcessSettings):
    """Calls a Python function: `module:name` or `file.py:name`."""

    later: ClassVar[tuple[str, ...]] = (
        "timeout_s",
        "score_range",
        "confidence",
        "env",
        "interpreter",
        *ProcessSettings.model_fields,
    )
    target: str = Field(min_length=3)
    threshold: Rate | None = None
    score_range: ScoreRange = (0.0, 1.0)
    confidence: ConfidenceMeaning | None = None
    view: View = View.TEXT
    env: str | None = None
    interpreter: str | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> PythonSettings:
        """Refuse what goes with another interpreter only."""
        if self.env is not None and self.interpreter is not None:
            raise ValueError("names both env and interpreter: give one")
        given = sorted(self.model_fields_set & ProcessSettings.model_fields.keys())
        if given and self.processes is None:
            raise ValueError(f"{given[0]} goes with env or interpreter, for a process of its own")
        if self.reset:
            raise ValueError("a function has no reset: use restart_after: 1")
        return self

    @property
    def processes(self) -> int | None:
        """How many processes are asked at once; None for a function in this process."""
        if self.env is None and self.interpreter is None:
            return None
        return self.workers

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        if self.processes is not None:
            return self._build_outside(name, context)
        try:
            target = load_target(self.target, folder=context.folder)
        except ConfigError as error:
            raise BadSettings([(("target",), str(error))]) from error
        files = source_of(self.target, folder=context.folder)
        try:
            return defense_from(
                target,
                name=name,
                threshold=self.threshold,
                score_range=self.score_range,
                confidence=self.confidence,
                view=self.view,
                files=files,
                timeout_s=self.timeout_s,
            )
        except TypeError as error:
            raise BadSettings([(("target",), f"{self.target}: {error}.")]) from error

    def _build_outside(self, name: str, context: BuildContext) -> object:
        origin, folder = self.target.rpartition(":")[0], context.folder
        if not origin:
            message = f"{self.target!r} names no function: write module:name or file.py:name."
            raise BadSettings([(("target",), message)])
        files: tuple[Path, ...] = ()
        if origin.endswith(".py"):
            files = (folder / origin,)
            try:
                require_program(folder / origin)
            except ConfigError as error:
                raise BadSettings([(("target",), str(error))]) from error
        command = python_command(
            self.target, env=self.env, interpreter=self.interpreter, folder=folder
        )
        return defense_in_processes(name, self, context, command=command, files=files)
