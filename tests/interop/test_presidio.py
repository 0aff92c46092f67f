"""Presidio as people use it: its template, which blocks and masks, and its analyzer over HTTP.

Without a language model it finds what patterns and checksums tell: addresses, numbers of cards,
accounts and phones. All figures on `builtin:secrets` are counted by hand from what it finds.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.interop.environments import (
    ENVIRONMENTS,
    NEEDS_ENVIRONMENTS,
    free_port,
    program,
    serving,
)
from tests.journeys.arms_around_a_model import counts
from tests.journeys.command_line import guardmark

from guardmark.datasets.builtin import BUILTIN_SETS

pytestmark = NEEDS_ENVIRONMENTS

ASK_IT = """
import json, sys
from presidio_worker import ENTITIES, analyzer, mask
for line in sys.stdin:
    text = json.loads(line)["text"]
    some = analyzer.analyze(text, language="en", entities=ENTITIES)
    every = analyzer.analyze(text, language="en")
    print(json.dumps({
        "some": [[each.start, each.end, each.score] for each in some],
        "every": [[each.start, each.end, each.score] for each in every],
        "masked": mask(text)["rewritten"],
    }))
"""
"""Asks the library about each row, without guardmark."""
SERVICE = """
import sys
from flask import Flask, jsonify, request
from presidio_analyzer import AnalyzerRequest
from presidio_worker import analyzer

app = Flask("analyzer")

@app.post("/analyze")
def analyze():
    asked = AnalyzerRequest(request.get_json())
    found = analyzer.analyze(
        text=asked.text, language=asked.language, entities=asked.entities,
        score_threshold=asked.score_threshold,
    )
    for each in found:
        del each.recognition_metadata
    return jsonify([each.to_dict() for each in found])

app.run(host="127.0.0.1", port=int(sys.argv[1]))
"""
"""The route of presidio-analyzer's own service, whose file is in no package."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the template, whose environment is the one that was built."""
    folder = tmp_path_factory.mktemp("presidio")
    done = guardmark("init", "--template", "presidio", cwd=folder)
    assert done.code == 0, done.err
    (folder / "bench.yaml").write_text(done.out, encoding="utf-8")
    (folder / "venvs").mkdir()
    (folder / "venvs" / "presidio").symlink_to(ENVIRONMENTS / "presidio")
    return folder


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The samples of the built-in set."""
    (folder,) = [each.folder for each in BUILTIN_SETS if each.folder.name.startswith("secrets")]
    lines = [
        line for path in folder.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()
    ]
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def found(home: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the library finds in each sample."""
    done = subprocess.run(
        [program("presidio"), "-c", ASK_IT],
        cwd=home,
        input="\n".join(json.dumps(row) for row in rows),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def measured(folder: Path, name: str, out: str) -> dict[str, Any]:
    """Run a configuration; return its defenses by name."""
    done = guardmark("run", name, "-o", out, cwd=folder)
    assert done.code == 0, done.err
    summary = json.loads((folder / out / "summary.json").read_text("utf-8"))
    return {each["name"]: each for each in summary["defenses"]}


def test_what_its_template_blocks_and_masks_equals_a_count_by_hand(
    home: Path, rows: list[dict[str, Any]], found: list[dict[str, Any]]
) -> None:
    """Blocks, marked data that went on by kind, and words changed for nothing."""
    guards = measured(home, "bench.yaml", "out")
    pairs = list(zip(rows, found, strict=True))
    attacks = [answer for row, answer in pairs if row["label"] == "attack"]
    benign = [answer for row, answer in pairs if row["label"] == "benign"]
    rates = guards["presidio"]["rates"]
    allowed = sum(not answer["some"] for answer in attacks)
    assert counts(rates["attack_success_rate"]) == (allowed, len(attacks))
    blocked = sum(bool(answer["some"]) for answer in benign)
    assert counts(rates["false_positive_rate"]) == (blocked, len(benign))

    masking = guards["presidio-mask"]["masking"]
    assert counts(masking["rewritten_attacks"]) == (len(attacks) - allowed, len(attacks))
    assert counts(masking["rewritten_benign"]) == (blocked, len(benign))
    leaks: dict[str, list[bool]] = {}
    for row, answer in pairs:
        for span in row.get("spans", ()):
            marked = row["text"][span["start"] : span["end"]]
            leaks.setdefault(span["kind"], []).append(marked in answer["masked"])
    told = {each["kind"]: counts(each["leaked"]) for each in masking["kinds"]}
    assert told == {kind: (sum(each), len(each)) for kind, each in leaks.items()}
    # Patterns find most addresses of mail, and nobody's name.
    assert 2 * told["email"][0] < told["email"][1]
    assert told["person"][0] == told["person"][1]

    changed = [changed_words(row, answer["some"]) for row, answer in pairs]
    hits, words = (sum(each) for each in zip(*changed, strict=True))
    assert counts(masking["changed_words"]) == (hits, words)


def changed_words(row: dict[str, Any], spans: list[list[float]]) -> tuple[int, int]:
    """Count words outside of marked places that stand in something found, and all of them."""
    hits = words = 0
    for word in re.finditer(r"\w+", row["text"]):
        if any(
            word.start() < each["end"] and each["start"] < word.end()
            for each in row.get("spans", ())
        ):
            continue
        words += 1
        hits += any(word.start() < end and start < word.end() for start, end, _ in spans)
    return hits, words


HTTP = """\
version: 1
name: service
data: [{{builtin: secrets}}]
defenses:
  any: {{type: http, profile: presidio-analyzer, variables: {{server: "{url}"}}}}
  sure:
    type: http
    profile: presidio-analyzer
    variables: {{server: "{url}"}}
    body: {{text: {{$input: text}}, language: en, score_threshold: 0.5}}
report: [json]
"""


def test_its_service_as_a_guard_equals_a_count_by_hand(
    home: Path, rows: list[dict[str, Any]], found: list[dict[str, Any]]
) -> None:
    """Anything found blocks, or what is found with a score of one half."""
    (home / "service.py").write_text(SERVICE, encoding="utf-8")
    port = free_port()
    with serving(program("presidio"), "service.py", port, port=port, cwd=home) as url:
        (home / "http.yaml").write_text(HTTP.format(url=url), encoding="utf-8")
        guards = measured(home, "http.yaml", "http")
    for name, least in (("any", 0.0), ("sure", 0.5)):
        blocks = [any(score >= least for *_, score in answer["every"]) for answer in found]
        by_label = {
            label: [b for row, b in zip(rows, blocks, strict=True) if row["label"] == label]
            for label in ("attack", "benign")
        }
        rates = guards[name]["rates"]
        passed = [not each for each in by_label["attack"]]
        assert counts(rates["attack_success_rate"]) == (sum(passed), len(passed))
        wrong = by_label["benign"]
        assert counts(rates["false_positive_rate"]) == (sum(wrong), len(wrong))
