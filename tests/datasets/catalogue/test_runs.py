"""Runs over public data: sliced by source, intervals by group, and the purpose of a suite told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.cli import main

if TYPE_CHECKING:
    from pathlib import Path

FIVE = {
    "xstest": "xstest_prompts",
    "deepset-prompt-injections": "deepset_prompt_injections",
    "latent-jailbreak": "latent_jailbreak_a",
    "forbidden-questions": "forbidden_questions",
    "mt-bench": "mt_bench",
}


def summary_of(folder: Path, data: list[dict[str, str]]) -> dict[str, Any]:
    """Run built-in patterns over data and read what was written."""
    patterns = {"type": "pattern", "builtin": True}
    config = {"version": 1, "data": data, "defenses": {"words": patterns}}
    (folder / "run.yaml").write_text(json.dumps(config))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(folder / "run.yaml"), "-o", str(folder / "out"), "--offline"])
    assert ended.value.code in {0, None}
    found: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return found


@pytest.mark.slow
def test_five_public_sets_at_once(shared_dir: Path, tmp_path: Path) -> None:
    """Each is a slice; of 412 rows of latent-jailbreak 16 groups carry the interval."""
    originals = shared_dir / "data" / "original"
    data = [{"catalogue": name, "from": str(originals / at)} for name, at in FIVE.items()]
    summary = summary_of(tmp_path, data)
    (attacks, benign) = (
        {rate["name"]: rate["rate"] for rate in cut["rates"]}
        for cut in summary["defenses"][0]["slices"]
        if cut["facet"] == "source"
    )
    assert attacks.keys() | benign.keys() == FIVE.keys()
    latent, forbidden = attacks["latent-jailbreak"], attacks["forbidden-questions"]
    assert (latent["trials"], latent["groups"]) == (412, 16)
    assert latent["high"] - latent["low"] > 5 * (forbidden["high"] - forbidden["low"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Intervals count groups, which are few in latent-jailbreak (16 of 412 samples)." in page


@pytest.mark.slow
def test_a_suite_tells_its_purpose(shared_dir: Path, tmp_path: Path) -> None:
    """Beside each set, in the document and in the page; its samples are the same each time."""
    suite = {"suite": "prompt-injection", "from": str(shared_dir / "data" / "original")}
    summary = summary_of(tmp_path, [suite])
    told = "suite prompt-injection 1, purpose prompt-injection"
    assert all(told in each["version"] for each in summary["data"])
    assert told in (tmp_path / "out" / "report.html").read_text()
    counts = [(each["attacks"], each["benign"]) for each in summary["data"]]
    assert [sum(side) for side in zip(*counts, strict=True)] == [713, 715]
