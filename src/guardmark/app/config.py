"""Reading a configuration file: every mistake at once, with line, column and a hint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from guardmark.app.registry import helper_kind, settings_model
from guardmark.app.settings import Config, Secret
from guardmark.core.errors import ConfigError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

_Section = TypeVar("_Section", bound=BaseModel)
Path_ = tuple[str, ...]
"""Keys and indices from the top of the file, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration and where it came from.

    Attributes:
        config: The settings.
        parts: Checked settings of every part, by path (`("defenses", "granite")`).
        folder: Folder that relative paths start from.
        shown_as: The file as the user wrote it, or `built-in`.
        places: Line and column of each setting, from 1; empty without a file.
    """

    config: Config
    parts: Mapping[Path_, BaseModel] = field(default_factory=dict)
    folder: Path
    shown_as: str
    places: Mapping[Path_, tuple[int, int]] = field(default_factory=dict)

    def where(self, path: Path_) -> str:
        """Name the file, and line and column of a setting.

        Args:
            path: Keys and indices; the nearest that stands in the file is named.
        """
        while path and path not in self.places:
            path = path[:-1]
        if path not in self.places:
            return self.shown_as
        line, column = self.places[path]
        return f"{self.shown_as}:{line}:{column}"


class _Loader(yaml.SafeLoader):
    """The safe loader, but a key that stands twice is refused: the last would silently win."""

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
                    problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_config(path: Path) -> LoadedConfig:
    """Read and check a configuration file.

    Args:
        path: The YAML file.

    Returns:
        The settings, those of every part included.

    Raises:
        ConfigError: If the file is missing, is not YAML, or holds mistakes; all of them are
            named with file, line and column.
    """
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder, not a configuration.\n"
            f"To go on with a run: guardmark run CONFIG -o {path}"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(
            f"The configuration {path} cannot be read: {reason}.\n"
            "To start one: guardmark init > bench.yaml"
        ) from error
    return parse_config(text, folder=path.resolve().parent, shown_as=str(path))


def parse_config(text: str, *, folder: Path, shown_as: str) -> LoadedConfig:
    """Check the text of a configuration.

    Args:
        text: YAML.
        folder: Folder that relative paths start from.
        shown_as: What to call it in messages.

    Returns:
        The settings, those of every part included.

    Raises:
        ConfigError: If the text is not YAML or holds mistakes; all of them are named.
    """
    document, source = _parsed(text, shown_as)
    if not isinstance(document, dict):
        found = "nothing" if document is None else f"a {type(document).__name__}"
        raise ConfigError(
            f"{shown_as}: expected settings (version, data, defenses ...), found {found}.\n"
            "To start one: guardmark init > bench.yaml"
        )
    return _checked(document, source, folder)


def config_around(
    path: Path, document: dict[str, Any], *, moved: Mapping[Path_, Path_]
) -> LoadedConfig:
    """Check a configuration made from sections of a file, telling places of that file.

    Args:
        path: The file, which is YAML.
        document: The whole configuration.
        moved: Where a section stands in the file, to where it stands in the configuration.

    Returns:
        The settings, those of every part included.

    Raises:
        ConfigError: If there are mistakes; all of them are named with their place in the file.
    """
    _, own = _parsed(path.read_text(encoding="utf-8-sig"), str(path))
    places = dict(own.places)
    for origin, section in moved.items():
        places.update(
            (section + place[len(origin) :], at)
            for place, at in own.places.items()
            if place[: len(origin)] == origin
        )
    return _checked(document, _Source(shown_as=str(path), places=places), path.resolve().parent)


def _checked(document: dict[str, Any], source: _Source, folder: Path) -> LoadedConfig:
    mistakes: list[str] = []
    config = None
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        mistakes.extend(_mistakes(error, Config, (), source))
    parts = _check_parts(document, source, mistakes)
    if config is not None:
        mistakes.extend(_loose_ends(config, source))
    if mistakes or config is None:
        raise ConfigError("\n".join(mistakes))
    return LoadedConfig(
        config=config,
        parts=parts,
        folder=folder,
        shown_as=source.shown_as,
        places=source.places,
    )


def load_section(path: Path, model: type[_Section], *, key: str) -> _Section:
    """Read one section of settings, from a file of its own or from a whole configuration.

    Args:
        path: The YAML file.
        model: The settings of the section.
        key: Name of the section in a whole configuration.

    Returns:
        The checked settings.

    Raises:
        ConfigError: If the file is missing, is not YAML, or holds mistakes; all of them are
            named with file, line and column.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The file {path} cannot be read: {reason}.") from error
    document, source = _parsed(text, str(path))
    above: Path_ = ()
    if isinstance(document, dict) and key in document:
        document, above = document[key], (key,)
    if not isinstance(document, dict):
        raise ConfigError(f"{source.where(above)}: expected settings of {key!r}, found none.")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError("\n".join(_mistakes(error, model, above, source))) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where in the file each setting stands."""

    shown_as: str
    places: dict[Path_, tuple[int, int]]

    def where(self, path: Path_) -> str:
        """Name the file and the nearest place of a path that stands in it."""
        while path and path not in self.places:
            path = path[:-1]
        line, column = self.places.get(path, (1, 1))
        return f"{self.shown_as}:{line}:{column}"


def _parsed(text: str, shown_as: str) -> tuple[object, _Source]:
    loader = _Loader(text)
    places: dict[Path_, tuple[int, int]] = {(): (1, 1)}
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
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{shown_as}: is not YAML ({type(error).__name__}).") from error
    finally:
        loader.dispose()
    return document, _Source(shown_as=shown_as, places=places)


def _note_places(node: yaml.Node, path: Path_, places: dict[Path_, tuple[int, int]]) -> None:
    children: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(index), item, item) for index, item in enumerate(node.value)]
    for name, marked, child in children:
        below = (*path, name)
        places[below] = (marked.start_mark.line + 1, marked.start_mark.column + 1)
        _note_places(child, below, places)


def _check_parts(
    document: dict[str, Any],
    source: _Source,
    mistakes: list[str],
) -> dict[Path_, BaseModel]:
    """Check the settings of every defense, model and judge against its own type."""
    checked: dict[Path_, BaseModel] = {}
    for kind, path, settings in _part_settings(document):
        here = source.where(path)
        dotted = ".".join(path)
        part_type = settings.get("type")
        if not isinstance(part_type, str):
            mistakes.append(f"{here}: {dotted} needs a type, for example type: pattern.")
            continue
        try:
            model = settings_model(kind, part_type)
            checked[path] = model.model_validate(_own_settings(settings, model))
            mistakes.extend(_version_mistakes(settings, path, source))
        except ConfigError as error:
            mistakes.append(f"{source.where((*path, 'type'))}: {dotted}: {error}")
        except ValidationError as error:
            mistakes.extend(_mistakes(error, model, path, source, common=("version",)))
    return checked


def _own_settings(settings: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Leave out what every part may say and no type has to know: its type and its version."""
    common = {"type", "version"} - set(model.model_fields)
    return {key: value for key, value in settings.items() if key not in common}


def _version_mistakes(settings: dict[str, Any], path: Path_, source: _Source) -> Iterator[str]:
    """A version is text: YAML reads 3.10 without quotes as the number 3.1."""
    version = settings.get("version", "")
    if not isinstance(version, str):
        below = (*path, "version")
        yield (
            f"{source.where(below)}: {'.'.join(below)}: is not text, found {version!r}. "
            'Put it in quotes, for example version: "3.10".'
        )


def _part_settings(document: dict[str, Any]) -> Iterator[tuple[str, Path_, dict[str, Any]]]:
    defenses = document.get("defenses")
    if isinstance(defenses, dict):
        for name, settings in defenses.items():
            if isinstance(settings, dict):
                yield "defense", ("defenses", str(name)), settings
    yield from _helper_settings(document.get("adaptive"))
    pipeline = document.get("pipeline")
    if not isinstance(pipeline, dict):
        return
    if isinstance(pipeline.get("model"), dict):
        yield "model", ("pipeline", "model"), pipeline["model"]
    judges = pipeline.get("judges")
    if isinstance(judges, list):
        for index, settings in enumerate(judges):
            if isinstance(settings, dict):
                yield "judge", ("pipeline", "judges", str(index)), settings


def _helper_settings(adaptive: object) -> Iterator[tuple[str, Path_, dict[str, Any]]]:
    """Models that help an attacker, and what follows gradients."""
    if not isinstance(adaptive, dict):
        return
    if isinstance(adaptive.get("gradient"), dict):
        yield "gradient", ("adaptive", "gradient"), adaptive["gradient"]
    for name in ("attacker", "equivalence", "critic"):
        if isinstance(adaptive.get(name), dict):
            yield helper_kind(name, adaptive[name]), ("adaptive", name), adaptive[name]


def _loose_ends(config: Config, source: _Source) -> Iterator[str]:
    """Names that point nowhere."""
    known = [*config.defenses, "none"]
    if config.pipeline is not None:
        for index, guard in enumerate(config.pipeline.guards):
            if guard not in known:
                here = source.where(("pipeline", "guards", str(index)))
                hint = did_you_mean(guard, known)
                yield f"{here}: no defense is called {guard!r}.{hint} Known: {listed(known)}."


def _mistakes(
    error: ValidationError,
    model: type[BaseModel],
    above: Path_,
    source: _Source,
    *,
    common: tuple[str, ...] = (),
) -> Iterator[str]:
    for item in error.errors(include_url=False):
        path = (*above, *(str(step) for step in item["loc"]))
        here = source.where(path)
        dotted = ".".join(path)
        if item["type"] == "extra_forbidden":
            known = [*common, *_known_keys(model, item["loc"][:-1])]
            hint = did_you_mean(str(item["loc"][-1]), known) or f" Known: {listed(known)}."
            yield f"{here}: no setting is called {dotted!r}.{hint}"
        elif item["type"] == "missing":
            yield f"{here}: {dotted!r} is missing."
        else:
            yield f"{here}: {dotted + ': ' if dotted else ''}{_told(item)}"


def _told(item: ErrorDetails) -> str:
    """Say what is wrong with a value and what came; never what came where a secret belongs."""
    if item.get("ctx", {}).get("class_name") == Secret.__name__:
        return "a secret never stands in the file; name the variable that holds it: {env: NAME}."
    if item["loc"][-1:] == ("env",):
        return "is no name of an environment variable: letters, digits and _ (never the secret)."
    message = item["msg"].removeprefix("Value error, ").removesuffix(".")
    if message.endswith("?"):
        return message
    came = f", found {str(item['input'])[:60]!r}" if _is_plain(item["input"]) else ""
    return f"{message}{came}."


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Follow a location into nested models and return the keys known there."""
    here: type[BaseModel] | None = model
    for step in loc:
        if here is None or not isinstance(step, str) or step not in here.model_fields:
            continue  # an index or a free key: the model stays the one of its values
        here = _model_inside(here.model_fields[step].annotation)
    fields = here.model_fields if here is not None else {}
    return [info.alias or name for name, info in fields.items()]


def _model_inside(annotation: object) -> type[BaseModel] | None:
    """The first settings model within an annotation such as `dict[str, Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_inside(inner)
        if found is not None:
            return found
    return None
