"""Names in the house: a public class has one name and one home. Sizes are printed by `make sizes`, not limited."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "guardmark"
SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_no_two_public_classes_share_a_name() -> None:
    """A name that means two things makes a reader guess."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(ROOT).as_posix())
    assert homes, "no class was found: the package lies elsewhere"
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
