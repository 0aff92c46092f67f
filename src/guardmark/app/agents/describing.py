"""The verb `suites`: which suites there are, what is in one, and whether it is sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guardmark.core.errors import UnknownName
from guardmark.suites.agentdojo.suite import SUITES
from guardmark.suites.checking import check_suite
from guardmark.suites.loading import BUILT_IN, load_suite, read_suite, suite_path

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLine:
    """A suite by name, and what it is."""

    name: str
    about: str


def list_suites() -> list[SuiteLine]:
    """Return every suite that a configuration can name without a file."""
    errands = "everyday work over mail, calendar, files, a shop, a chat and web pages; built in"
    lines = [SuiteLine(name="errands", about=errands)]
    about = "of AgentDojo 0.1.35 (pip install 'guardmark[agentdojo]')"
    lines += [SuiteLine(name=f"agentdojo/{name}", about=about) for name in SUITES]
    own = "a suite of your own: docs/reference/suite-files.md"
    lines.append(SuiteLine(name="FILE.yaml", about=own))
    return lines


def describe_suite(name: str, folder: Path) -> dict[str, Any]:
    """Return what a suite file states; no code of it runs."""
    settings, _ = read_suite(_file_of(name, folder))
    return settings.model_dump(mode="json", exclude={"world"})


def check_suite_file(name: str, folder: Path) -> list[str]:
    """Run all known solutions of a suite, and say what is wrong with it."""
    return check_suite(load_suite(_file_of(name, folder)))


def _file_of(name: str, folder: Path) -> Path:
    path = suite_path(name, folder)
    if path is None:
        raise UnknownName("suite that lies in a file", name, BUILT_IN)
    return path
