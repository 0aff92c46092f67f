"""Print the size of each room beside packages to compare with: `make sizes`.

Nothing is enforced. The figures show where code is dense (many expressions a line) and where it
is unexplained (few docstrings).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "guardmark"

EXPRESSIONS: Final = (
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.NamedExpr,
)
"""Comprehensions, conditional expressions and walruses."""

DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(kw_only=True)
class Size:
    """How large some files are together.

    Attributes:
        files: How many files.
        lines: Their lines, blank ones included.
        nodes: Nodes of their syntax trees.
        expressions: Comprehensions, conditional expressions and walruses.
        docstring_lines: Lines of docstrings of modules, classes, functions and attributes.
    """

    files: int = 0
    lines: int = 0
    nodes: int = 0
    expressions: int = 0
    docstring_lines: int = 0

    def add(self, other: Size) -> None:
        """Add the size of other files."""
        self.files += other.files
        self.lines += other.lines
        self.nodes += other.nodes
        self.expressions += other.expressions
        self.docstring_lines += other.docstring_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A package to compare with; its figures were counted the same way in November 2026."""

    name: str
    files: int
    lines: int
    expressions_per_100: float
    docstring_share: float


ANCHORS: Final = (
    Anchor(
        name="import-linter", files=40, lines=3_994, expressions_per_100=1.8, docstring_share=0.16
    ),
    Anchor(name="httpx", files=23, lines=8_827, expressions_per_100=1.6, docstring_share=0.17),
    Anchor(name="evalica", files=8, lines=4_313, expressions_per_100=0.3, docstring_share=0.14),
    Anchor(
        name="pydantic_evals", files=29, lines=9_091, expressions_per_100=2.7, docstring_share=0.18
    ),
    Anchor(name="llm", files=19, lines=16_089, expressions_per_100=1.9, docstring_share=0.08),
    Anchor(
        name="pydantic_ai", files=284, lines=114_358, expressions_per_100=1.6, docstring_share=0.17
    ),
)


def measure(source: str) -> Size:
    """Count one file."""
    size = Size(files=1, lines=source.count("\n"))
    for node in ast.walk(ast.parse(source)):
        size.nodes += 1
        if isinstance(node, EXPRESSIONS):
            size.expressions += 1
        if isinstance(node, DOCUMENTED):
            size.docstring_lines += _docstring_lines(node)
    return size


def _docstring_lines(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> int:
    """Count the lines of texts that stand alone: of the thing itself, and of its attributes."""
    lines = 0
    for statement in node.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                lines += (statement.end_lineno or statement.lineno) - statement.lineno + 1
    return lines


def measure_rooms(source: Path) -> dict[str, Size]:
    """Count each room; modules beside the rooms stand under `.`."""
    rooms: dict[str, Size] = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).parts
        room = "."
        if len(parts) > 1:
            room = parts[0]
        rooms.setdefault(room, Size()).add(measure(path.read_text(encoding="utf-8")))
    return rooms


def main() -> None:
    """Print a line for each room, their sum, and the packages to compare with."""
    print(f"{'room':<16}{'files':>7}{'lines':>9}{'nodes':>9}{'expr/100':>10}{'docs':>7}")
    total = Size()
    for room, size in measure_rooms(SOURCE).items():
        _show(room, size)
        total.add(size)
    _show("all", total)
    print()
    for anchor in ANCHORS:
        print(
            f"{anchor.name:<16}{anchor.files:>7}{anchor.lines:>9,}{'':>9}"
            f"{anchor.expressions_per_100:>10.1f}{anchor.docstring_share:>7.0%}"
        )


def _show(room: str, size: Size) -> None:
    print(
        f"{room:<16}{size.files:>7}{size.lines:>9,}{size.nodes:>9,}"
        f"{100 * size.expressions / size.lines:>10.1f}{size.docstring_lines / size.lines:>7.0%}"
    )


if __name__ == "__main__":
    main()
