"""Messages for whoever calls a verb from Python: options are named as its parameters."""

from __future__ import annotations

import inspect
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import GuardmarkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ALSO: Final = {"-o": "--out", "--failed": "--retry-errors"}
_OPTION: Final = re.compile(r"(?<![\w-])(?P<option>-o\b|--[a-z][a-z-]*)(?P<value> (?=['A-Z]))?")


@contextmanager
def python_words(verb: Callable[..., object]) -> Iterator[None]:
    """Tell errors of a block in words of a verb: `out=` where the command line says `-o`."""
    try:
        yield
    except GuardmarkError as error:
        parameters = inspect.signature(verb).parameters
        words = [
            translated(part, parameters) if isinstance(part, str) else part for part in error.args
        ]
        error.args = tuple(words)
        raise


def translated(text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Name parameters in the place of options; what a verb does not take stays an option."""

    def in_python(match: re.Match[str]) -> str:
        option = _ALSO.get(match["option"], match["option"])
        name = option.removeprefix("--").replace("-", "_")
        known = parameters.get(name)
        if known is None:
            return match[0]
        if known.default is False:
            return f"{name}=True{match['value'] or ''}"
        return f"{name}="

    return _OPTION.sub(in_python, text)
