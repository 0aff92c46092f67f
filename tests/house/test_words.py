"""Rules of style that a linter does not know."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "guardmark").rglob("*.py"))
BANNED_ROOMS = {"utils", "common", "helpers", "base", "misc"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_room_is_called_utils(path: Path) -> None:
    """A file named after nothing attracts everything."""
    parts = {part.removesuffix(".py").lstrip("_") for part in path.relative_to(ROOT).parts}
    assert not parts & BANNED_ROOMS


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_nothing_is_left_to_do_later(path: Path) -> None:
    """What is not done is in the issue tracker, not in a comment."""
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text(encoding="utf-8"))


def test_broad_excepts_live_at_the_edges_only() -> None:
    """Failure becomes a value in three lines, an exit code in one more; elsewhere it passes on.

    One stands in a script that another interpreter runs: there it becomes a line of JSON.
    One stands where the tools of a suite are called: what an agent reads of a crashed tool.
    The last hands what a thread of `view` raised to the request that waits for its page.
    """
    handlers = [
        path.relative_to(ROOT / "src" / "guardmark").as_posix()
        for path in SOURCES
        for _ in _swallowing_handlers(path)
    ]
    assert sorted(handlers) == [
        "cli/__init__.py",
        "defenses/command/python_worker.py",
        "engine/asking.py",
        "engine/calls.py",
        "engine/calls.py",
        "suites/agentdojo/worker.py",
        "suites/own.py",
        "view/making.py",
    ]


def _swallowing_handlers(path: Path) -> list[ast.ExceptHandler]:
    """Handlers that catch everything and do not raise it again."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
