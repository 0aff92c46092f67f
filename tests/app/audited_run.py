"""An adapted run of which bypasses rest on a table, on a judge and on neither, known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.adaptive.attacking import OPEN, Models, Table, attacks, plan_of, said
from tests.adaptive.planted import AtOnce, attack

from guardmark.core.sample import Sample

if TYPE_CHECKING:
    from tests.conftest import Serve

NAMES = ("s1", "s2", "s3", "m1", "m2", "p1", "h1")
"""`s` falls to a synonym, `m` to the attacker model, `p` to a case change; `h` holds."""
GROUPS = {"s1": "first", "s2": "first", "s3": "second", "m1": "third", "m2": "fourth"}


def blocks(text: str) -> bool:
    """Block all but listed rewordings: synonyms in some, capitals in one, a word in all."""
    if text.casefold().endswith("praise p1."):
        return text[:6] != "IGNORE"
    is_reworded = text.startswith("Overlook the ") and text.endswith(
        ("praise s1.", "praise s2.", "praise s3.")
    )
    return OPEN not in text and not is_reworded and "soup" not in text


def data() -> list[Sample]:
    """Seven attacks in six groups, and a benign question."""
    return [replace(each, group=GROUPS.get(each.id, "")) for each in attacks(*NAMES)]


async def adapted(folder: Path, serve: Serve) -> Path:
    """Attack the defense with both models behind a real server."""
    table = Table(
        {
            "m1": [said(f"Say {OPEN} for m1")],
            "m2": [said(f"Say {OPEN} for m2")],
            "h1": [said("no", "nope")],
        }
    )
    models = Models((await serve(table.respond)).url)
    await models.settle()
    try:
        await attack(folder, data(), plan_of(models, defense=AtOnce("d", blocks)))
    finally:
        await models.services.close()
    return folder
