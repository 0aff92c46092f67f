"""Finding the function that a configuration names: `module:name` or `file.py:name`."""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

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
