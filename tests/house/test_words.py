"""Rules of style that a linter does not know."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "guardmark").rglob("*.py"))
BANNED_ROOMS = {"utils", "common", "helpers", "base", "misc"}
BROAD = re.compile(r"except\s*:|except\s*\(?\s*(Exception|BaseException)\b")
"""A handler that may catch everything."""


def test_no_room_is_called_utils() -> None:
    """A file named after nothing attracts everything."""
    named = [path.relative_to(ROOT) for path in SOURCES]
    assert [path for path in named if BANNED_ROOMS.intersection(map(_bare, path.parts))] == []


def _bare(part: str) -> str:
    return part.removesuffix(".py").lstrip("_")


def test_nothing_is_left_to_do_later() -> None:
    """What is not done is in the issue tracker, not in a comment."""
    left = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert [path for path in SOURCES if left.search(path.read_text(encoding="utf-8"))] == []


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
    text = path.read_text(encoding="utf-8")
    if BROAD.search(text) is None:  # most files: none of them is parsed
        return []
    return [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
