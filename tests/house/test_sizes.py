"""The walls of the house: 600 lines a file, 60 a function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "guardmark").rglob("*.py"))
MOST_LINES_A_FILE = 600
MOST_LINES_A_FUNCTION = 60


def test_there_are_sources_to_look_at() -> None:
    """A moved folder must not make these rules pass for want of files."""
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_file_has_at_most_600_lines(path: Path) -> None:
    """A file that grows past the wall holds more than one idea."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES_A_FILE


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_function_has_at_most_60_lines(path: Path) -> None:
    """A function that needs scrolling is several; its docstring does not count."""
    too_long = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            if lines > MOST_LINES_A_FUNCTION:
                too_long.append((node.name, lines))
    assert too_long == []


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (first.end_lineno or first.lineno) - first.lineno + 1 if is_docstring else 0
