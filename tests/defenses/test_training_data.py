"""Defenses that were trained on the data they are asked with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.journeys.command_line import typed

from guardmark.core.manifest import DataManifest, PartManifest
from guardmark.datasets.catalogue.settings import entry_names, find_entry
from guardmark.defenses.profile import ProfileEntry, list_profiles
from guardmark.reports.chapters.data_sets import training_warnings

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = [entry for entry in list_profiles() if entry.trained_on]
CONFIG = """\
version: 1
data: [{{catalogue: aegis-2, from: .}}]
defenses:
  nemo: {{type: guard-model, profile: nemoguard-content-safety, base_url: "{url}", model: nemo}}
  words: {{type: pattern, patterns: [bad]}}
report: [md, json]
"""
WARNING = (
    "nemo was trained on aegis-2 or another part of that set, says "
    "https://huggingface.co/nvidia/llama-3.1-nemoguard-8b-content-safety:"
)


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.name)
def test_what_a_profile_was_trained_on_is_in_the_catalogue(entry: ProfileEntry) -> None:
    """A misspelt name would warn of nothing; and sets of the hub are named by the hub's name."""
    named = {name for name in entry.trained_on if "/" not in name}
    assert named
    assert named <= set(entry_names())
    homes = {find_entry(name).home.removeprefix("hub:") for name in named}
    of_hub = {home for home in homes if not home.startswith("github:")}
    assert of_hub <= set(entry.trained_on)


@pytest.mark.parametrize(
    ("file", "is_warned"),
    [
        ("aegis-2/test.json", True),
        ("nvidia/Aegis-AI-Content-Safety-Dataset-2.0/test.json", True),
        ("aegis-20/test.json", False),
        ("core/aegis-2.jsonl", False),
    ],
)
def test_data_are_known_by_where_they_come_from(file: str, *, is_warned: bool) -> None:
    """An entry of the catalogue or a set of the hub, whatever its rows are called here."""
    data = DataManifest(name="x", version="", sha256="", attacks=1, benign=1, files={file: ""})
    names = ["aegis-2", "nvidia/Aegis-AI-Content-Safety-Dataset-2.0"]
    known = {"source": "https://example.org", "data": names}
    part = PartManifest(name="g", kind="defense", type="http", settings={"trained_on": known})
    other = PartManifest(name="h", kind="defense", type="http")
    assert len(list(training_warnings([part, other], [data]))) == is_warned


@pytest.mark.slow
async def test_a_run_over_what_a_guard_was_trained_on_warns(
    chat_server: Any, tmp_path: Path
) -> None:
    """Before the run, after it and in its report; of the other defense nothing is said."""

    def answer(body: dict[str, Any]) -> object:
        risky = "bad" in str(body["messages"]) or "gnore" in str(body["messages"])
        return json.dumps({"User Safety": "unsafe" if risky else "safe"})

    chat_server.reply = answer
    rows = [
        {"prompt": f"{word} {n}", "prompt_label": label, "violated_categories": ""}
        for n in range(6)
        for word, label in (("bad", "unsafe"), ("plain", "safe"))
    ]
    (tmp_path / "test.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "b.yaml").write_text(CONFIG.format(url=chat_server.base_url), encoding="utf-8")
    checked = await typed("check", "b.yaml", cwd=tmp_path)
    assert f"Note: {WARNING}" in " ".join(checked.out.split())
    done = await typed("run", "b.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert f"Note: {WARNING}" in done.err
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert WARNING.partition(",")[0] in report
    assert "words was trained" not in report
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    (nemo,) = (part for part in summary["run"]["parts"] if part["name"] == "nemo")
    assert "aegis-2" in nemo["settings"]["trained_on"]["data"]
