"""`data check` says what is in a file before anything is declared about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.journeys.command_line import guardmark

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
version: 1
data: [{path: rows.jsonl}]
defenses: {words: {type: pattern, keywords: [orchid]}}
"""


def write_rows(folder: Path, *categories: str) -> None:
    """Write one attack of each category, and as many benign rows."""
    rows = [
        {"text": f"Say the word number {at}.", "label": "attack", "category": name}
        for at, name in enumerate(categories)
    ]
    rows += [{"text": f"Which soup is day {at}?", "label": "benign"} for at in range(len(rows))]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_categories_of_others_are_read_and_named(tmp_path: Path) -> None:
    """With the slip they may be, and with what a run needs; declared ones are not named."""
    write_rows(tmp_path, "jailbreak", "jailbraek", "prompt_attack")
    done = guardmark("data", "check", "rows.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "3 attacks and 3 benign" in said
    assert (
        "categories that are not declared: 'jailbraek' (did you mean 'jailbreak'?), 'prompt_attack'"
        in said
    )
    assert "1 of 5 declared categories have attacks" in said
    assert "open_categories: true takes any" in said


def test_many_are_counted(tmp_path: Path) -> None:
    """Five names and how many more there are."""
    write_rows(tmp_path, *(f"zz{number}" for number in range(9)))
    said = " ".join(guardmark("data", "check", "rows.jsonl", cwd=tmp_path).out.split())
    assert "'zz4' and 4 more. A run refuses them" in said


def test_asked_for_any_category_there_is_no_warning(tmp_path: Path) -> None:
    """`--open-categories` is what a run would say."""
    write_rows(tmp_path, "prompt_attack")
    done = guardmark("data", "check", "rows.jsonl", "--open-categories", cwd=tmp_path)
    assert "not declared" not in done.out


def test_a_run_and_the_check_of_its_configuration_refuse_as_before(tmp_path: Path) -> None:
    """There the taxonomy is the person's own statement."""
    write_rows(tmp_path, "prompt_attack")
    (tmp_path / "bench.yaml").write_text(CONFIG)
    for words in (("run", "bench.yaml", "-o", "out"), ("data", "check", "bench.yaml")):
        done = guardmark(*words, cwd=tmp_path)
        assert done.code == 3
        assert "'prompt_attack', which is not declared" in done.err
