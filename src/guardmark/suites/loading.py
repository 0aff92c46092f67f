"""Suites by name or by file; the code of a file's tools runs only where its user names it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from guardmark.config.mistakes import checked_settings
from guardmark.config.source import parse_yaml, read_text
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.suites.own import OwnSuite
from guardmark.suites.settings import SuiteSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.config.source import Source

BUILT_IN: Final = ("errands",)
"""Names of the suites that come with guardmark."""


def suite_path(name: str, folder: Path) -> Path | None:
    """Return the file of a suite: a built-in one by its name, or one's own by its path."""
    if name in BUILT_IN:
        return Path(__file__).with_name(name) / "suite.yaml"
    if name.endswith((".yaml", ".yml", ".toml")):
        return folder / name
    return None


def read_suite(path: Path) -> tuple[SuiteSettings, Source]:
    """Read and check a suite file; no code of it runs."""
    text = read_text(path, f"The suite {path}")
    if path.suffix == ".toml":
        import tomllib

        from guardmark.config.source import Source

        try:
            document: object = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: is not TOML: {error}.") from error
        source = Source(shown_as=str(path), places={})
    else:
        document, source = parse_yaml(text, str(path))
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected a suite (suite, tools, world, tasks ...).")
    settings = checked_settings(SuiteSettings, document, source)
    return settings, source


def load_suite(path: Path) -> OwnSuite:
    """Load a suite with its tools: Python code of its author runs from here on."""
    settings, _ = read_suite(path)
    code = path.parent / settings.tools
    source = read_text(code, f"The tools {code} of the suite {path}")
    tools = _functions_of(code, source)
    digest = sha256(path.read_bytes() + b"\0" + source.encode())
    suite = OwnSuite(settings, tools, digest.hexdigest())
    _check_tools(suite, path)
    return suite


def _functions_of(path: Path, source: str) -> Sequence[Callable[..., str]]:
    module = ModuleType(f"guardmark_suite_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - a file that its user named
    except Exception as error:
        raise ConfigError(f"{path} cannot be loaded: {type(error).__name__}: {error}.") from error
    tools: Any = getattr(module, "TOOLS", None)
    if not isinstance(tools, list | tuple) or not tools or not all(map(callable, tools)):
        raise ConfigError(
            f"{path}: its tools are not listed.\n"
            "Next: end the file with TOOLS = (...), the list of all its tools."
        )
    return tuple(tools)


def _check_tools(suite: OwnSuite, path: Path) -> None:
    """Refuse known calls of tools that are not there."""
    settings = suite.settings
    for kind, rows in (("tasks", settings.tasks), ("injections", settings.injections)):
        for row in rows:
            for call in row.calls:
                for name in call:
                    if name not in suite.functions:
                        unknown = UnknownName("tool", name, suite.functions)
                        raise ConfigError(f"{path}: {kind}, {row.id}: {unknown}")
    for injection in settings.injections:
        if injection.tool and injection.tool not in suite.functions:
            unknown = UnknownName("tool", injection.tool, suite.functions)
            raise ConfigError(f"{path}: injections, {injection.id}: {unknown}")
