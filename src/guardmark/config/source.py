"""Files as a person wrote them: their text, and for YAML where in the file each value stands."""

from __future__ import annotations

import stat
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import yaml

from guardmark.core.errors import ConfigError
from guardmark.core.limits import LONGEST_NUMBER, MOST_TEXT_BYTES, MOST_YAML_VALUES
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

STANDARD_INPUT: Final = "-"
"""A name that stands for what is piped in."""
Keys = tuple[str, ...]  # keys and indices from the top of the file, as text


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where each setting stands.

    Attributes:
        shown_as: What messages call the file.
        places: Keys of a setting to its line and column; empty for settings that stand in no file.
    """

    shown_as: str
    places: Mapping[Keys, tuple[int, int]] = field(default_factory=dict)

    def nearest(self, path: Keys) -> tuple[int, int]:
        """Return line and column of a setting, or of the nearest around it that is in the file."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (0, 0))

    def where(self, path: Keys) -> str:
        """Name the file, and line and column of a setting."""
        line, column = self.nearest(path)
        return f"{self.shown_as}:{line}:{column}" if line else self.shown_as


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _SafeLoader = yaml.SafeLoader
else:

    class _SafeLoader(
        yaml.composer.Composer,
        yaml.cyaml.CParser,
        yaml.constructor.SafeConstructor,
        yaml.resolver.Resolver,
    ):
        """The safe loader with the parser of libyaml, three times as fast.

        Nodes are composed by Python: libyaml's composer has no bound on how deep they nest.
        """

        def __init__(self, stream: str) -> None:
            yaml.cyaml.CParser.__init__(self, stream)
            yaml.composer.Composer.__init__(self)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)


class _Loader(_SafeLoader):
    """The safe loader, but a key that appears twice is refused: the last would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - the signature is PyYAML's
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool):
                raise yaml.constructor.ConstructorError(
                    problem="keys must be plain words", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} appears twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Read a whole number, but none so long that no setting can mean it."""
        if len(node.value) > LONGEST_NUMBER:
            raise yaml.constructor.ConstructorError(
                problem=f"a number has more than {LONGEST_NUMBER} characters",
                problem_mark=node.start_mark,
            )
        return int(super().construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_text(path: Path, subject: str, *, next_step: str = "") -> str:
    """Read a file that a configuration names; the subject says which it is."""
    try:
        text = _whole_text(path)
    except _NoText as error:
        raise ConfigError(f"{subject} cannot be read: {error}.{next_step}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{subject} cannot be read: {reason}.{next_step}") from error
    # All lines end in a line feed, as where Python reads a text.
    return text.replace("\r\n", "\n").replace("\r", "\n")


class _NoText(Exception):
    """A path leads to no text that is read whole; the message says why."""


def _whole_text(path: Path) -> str:
    """Read a text of limited length: what a shell hands over may have no end."""
    if str(path) == STANDARD_INPUT:
        text = sys.stdin.read(MOST_TEXT_BYTES + 1)
        if len(text) > MOST_TEXT_BYTES:
            raise _NoText(_TOO_LONG)
        return text
    if not stat.S_ISREG(path.stat().st_mode) and not _is_standard_input(path):
        raise _NoText("it is not a file")
    with path.open("rb") as file:
        content = file.read(MOST_TEXT_BYTES + 1)
    if len(content) > MOST_TEXT_BYTES:
        raise _NoText(_TOO_LONG)
    return content.decode("utf-8-sig")


_TOO_LONG: Final = f"it has more than {MOST_TEXT_BYTES >> 20} MiB"


def _is_standard_input(path: Path) -> bool:
    """Tell whether a path is what a shell hands over: `/dev/stdin`, or `<(...)`."""
    return str(path) == "/dev/stdin" or str(path).startswith(("/dev/fd/", "/proc/self/fd/"))


def parse_yaml(text: str, shown_as: str) -> tuple[object, Source]:
    """Read YAML, and note where each setting stands."""
    places: dict[Keys, tuple[int, int]] = {(): (1, 1)}
    refused = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if refused is not None:
        line = text.count("\n", 0, refused.start()) + 1
        raise ConfigError(
            f"{shown_as}:{line}: is not YAML: it holds a character (code {ord(refused[0])}) that "
            "YAML does not allow."
        )
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _note_places(node, (), places)
        document = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(
            f"{shown_as}{where}: is not YAML: {error.problem or error.context}."
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{shown_as}: is not YAML ({type(error).__name__}).") from error
    finally:
        loader.dispose()
    return document, Source(shown_as=shown_as, places=places)


def _note_places(node: yaml.Node, path: Keys, places: dict[Keys, tuple[int, int]]) -> None:
    children: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(index), item, item) for index, item in enumerate(node.value)]
    if len(places) + len(children) > MOST_YAML_VALUES:
        raise yaml.constructor.ConstructorError(
            problem=f"it comes to more than {MOST_YAML_VALUES:,} values (aliases count each time)",
            problem_mark=node.start_mark,
        )
    for name, marked, child in children:
        below = (*path, name)
        places[below] = (marked.start_mark.line + 1, marked.start_mark.column + 1)
        _note_places(child, below, places)
