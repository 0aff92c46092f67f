"""How-to pages are carried out: their commands in order, with the files that they show, offline."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import Done, guardmark

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"
WORDS = ["apple", "bread", "chair", "door", "eagle", "fruit", "grass", "horse", "island", "jacket"]
WORDS += [
    "kettle",
    "lemon",
    "mirror",
    "needle",
    "orange",
    "paper",
    "queen",
    "river",
    "stone",
    "tea",
]
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
FAILS = {"examples/ci/worse.yaml": 1, "gate runs/candidate": 1, "--expect": 1, "--public-key": 3}
"""Commands that end with another code than 0, by words in them: what the pages say of them."""
WITH_A_RUN = ("read-samples-in-the-terminal", "verify-a-run")
ALONE = (
    "choose-a-threshold",
    "compare-defenses",
    "gate-a-release",
    "measure-stored-decisions",
    "stop-early",
    "use-your-own-data",
)
PATTERNS = {
    "version": 1,
    "name": "my-run",
    "data": [{"builtin": "core"}],
    "defenses": {"words": {"type": "pattern", "builtin": True}},
}


def carried_out(page: str, folder: Path) -> dict[str, Done]:
    """Write the files that a page shows and type its commands, in its order."""
    shutil.copytree(ROOT / "examples" / "ci", folder / "examples" / "ci")
    done: dict[str, Done] = {}
    for language, title, text in FENCE.findall((HOW_TO / f"{page}.md").read_text("utf-8")):
        if title:
            (folder / title).write_text(text, encoding="utf-8")
        lines = text.splitlines() if language in {"", "console", "sh"} else []
        for line in (each.removeprefix("$ ") for each in lines):
            if line.startswith("guardmark "):
                named = re.sub(r"runs/NAME/(RUN|BEFORE|AFTER)", "runs/my-run", line)
                command = named.partition(" | ")[0]
                words = shlex.split(command, comments=True)[1:]
                done[command] = guardmark(*words, cwd=folder)
    return done


def refused(done: dict[str, Done]) -> list[str]:
    """Name the commands that ended in another way than their page says."""
    return [
        f"{command}: {each.code}: {each.err}"
        for command, each in done.items()
        if each.code != next((code for words, code in FAILS.items() if words in command), 0)
    ]


@pytest.mark.parametrize("page", ALONE)
def test_a_page_can_be_carried_out_from_its_first_command_on(page: str, tmp_path: Path) -> None:
    """In an empty folder, with the files that it shows."""
    if page == "measure-stored-decisions":
        write_scores(tmp_path)
    done = carried_out(page, tmp_path)
    assert refused(done) == []
    assert done


@pytest.mark.parametrize("page", WITH_A_RUN)
def test_a_page_about_a_run_can_be_carried_out(page: str, tmp_path: Path) -> None:
    """With a run that lies where the page says."""
    (tmp_path / "bench.yaml").write_text(json.dumps(PATTERNS), encoding="utf-8")
    assert (
        guardmark("run", "bench.yaml", "--limit", 60, "-o", "runs/my-run", cwd=tmp_path).code == 0
    )
    done = carried_out(page, tmp_path)
    assert refused(done) == []
    if page == "verify-a-run":
        printed = re.sub(r"[0-9a-f]{16,}|[\d,]{2,}", "N", done["guardmark verify runs/my-run"].out)
        shown = re.sub(r"[0-9a-f]{16,}|[\d,]{2,}", "N", (HOW_TO / f"{page}.md").read_text("utf-8"))
        assert printed in shown


def write_scores(folder: Path) -> None:
    """Scores of two classifiers about the samples of the page, and about enough others."""
    shown = {"a-1": (0.9, 0.8), "a-2": (0.3, 0.7), "b-1": (0.1, 0.2)}
    rows = [f"{name},{old},{new}" for name, (old, new) in shown.items()]
    (folder / "scores.csv").write_text("\n".join(["id,old,new", *rows, ""]), encoding="utf-8")


def test_two_classifiers_are_compared_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configuration and its lines of Python, over three hundred samples."""
    page = (HOW_TO / "measure-stored-decisions.md").read_text(encoding="utf-8")
    (config,) = re.findall(r'```yaml title="scores.yaml"\n(.*?)```', page, re.DOTALL)
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    samples, scores = [], ["id,old,new"]
    for number in range(300):
        label, risk = ("attack", 0.6) if number % 2 else ("benign", 0.1)
        text = " ".join(WORDS[place] for place in (number % 20, number // 20, number * 7 % 20))
        samples.append(json.dumps({"id": f"s{number}", "text": text, "label": label}))
        scores.append(f"s{number},{risk + number % 4 / 10:.1f},{risk + number % 3 / 10:.1f}")
    (tmp_path / "scores.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "samples.jsonl").write_text("\n".join(samples), encoding="utf-8")
    (tmp_path / "scores.csv").write_text("\n".join(scores), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(script, "page", "exec"), names)  # noqa: S102 - our own page
    told = capsys.readouterr().out
    assert "old AUC" in told
    assert "new AUC" in told
    assert told.count("FPR at most") == 6
    chosen = guardmark("report", names["run"].folder, "--choose", "old=0.05", cwd=tmp_path)
    assert (chosen.code, "threshold: 0." in chosen.out) == (0, True)
