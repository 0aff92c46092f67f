"""What the pages show works, and is what is printed."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.journeys.command_line import guardmark

import guardmark as door
from guardmark.app.parts.building import build_parts, open_services
from guardmark.app.parts.loading import parse_config
from guardmark.app.settings import GateSettings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
RECIPES = YAML.findall((DOCS / "how-to" / "recipes.md").read_text(encoding="utf-8"))
MOVE = YAML.findall((DOCS / "how-to" / "move-from-minor-bench.md").read_text(encoding="utf-8"))
WHOLE = [
    pytest.param(text, id=yaml.safe_load(text)["name"])
    for text in [*RECIPES, *MOVE]
    if text.startswith("version")
]
KEYS = (
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "BEDROCK_GUARDRAIL_ID",
    "CONTENT_SAFETY_KEY",
    "LAKERA_GUARD_API_KEY",
    "OPENAI_API_KEY",
    "SCW_SECRET_KEY",
)
"""The variables that the recipes name."""
RATE = re.compile(r"\d+\.\d % \[\d+\.\d, \d+\.\d\]")
SHOWING_THE_DEMO = (
    DOCS / "images" / "demo.svg",
    DOCS / "tutorial" / "first-measurement.md",
    DOCS / "explanation" / "why-every-demo-guard-fails.md",
)


@pytest.mark.parametrize("text", WHOLE)
def test_the_parts_of_a_recipe_can_be_built(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `guardmark check` builds them before any call, with the variables that are named."""
    monkeypatch.setenv("CONTENT_SAFETY_ENDPOINT", "https://service.example")
    for name in KEYS:
        monkeypatch.setenv(name, "some-value")
    (tmp_path / "prompts.yaml").write_text("child-tutor: Be kind.\n", encoding="utf-8")
    loaded = parse_config(text, folder=tmp_path, shown_as="page")
    parts = build_parts(loaded, open_services(loaded))
    built = {each.manifest.name for each in parts.defenses}
    assert built == set(yaml.safe_load(text)["defenses"])


def test_the_gate_of_the_recipes_is_sound() -> None:
    """With the limits as the settings know them."""
    (text,) = (each for each in RECIPES if each.startswith("gate"))
    assert GateSettings.model_validate(yaml.safe_load(text)["gate"]).fpr_upper == 0.05


def test_the_public_names_are_those_of_the_page() -> None:
    """A name that nobody can read about is no promise."""
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)", page, re.MULTILINE))
    assert listed == set(door.__all__)


@pytest.mark.slow
def test_the_notebook_runs_and_holds_what_the_python_page_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Cell by cell, as it stands."""
    notebook = json.loads((ROOT / "examples" / "first-measurement.ipynb").read_text("utf-8"))
    cells = ["".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "code"]
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "".join("".join(cells).split()).startswith("".join(shown.split()))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells:
        exec(compile(cell, "cell", "exec"), names)  # noqa: S102 - our own notebook
    assert names["rate"].value == 0.0
    assert names["second"].analysis.defenses[0].card.attack_success_rate.value == 1.0


@pytest.mark.slow
def test_what_pages_show_of_the_demo_is_what_it_prints(tmp_path: Path) -> None:
    """Rates and intervals; `python scripts/draw_readme.py` draws the pictures anew."""
    done = guardmark("demo", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "guardmark init > bench.yaml" in done.out
    printed = set(RATE.findall(" ".join(done.out.split())))
    for page in SHOWING_THE_DEMO:
        told = re.sub(r"<[^>]*>", " ", page.read_text(encoding="utf-8"))
        rates = set(RATE.findall(" ".join(unescape(told).split())))
        assert len(rates) >= 3, page
        assert rates <= printed, page


@pytest.mark.slow
def test_the_good_and_the_bad_guard_of_the_readme_are_as_printed(tmp_path: Path) -> None:
    """Verdicts, rates, intervals and counts of both."""
    config = ROOT / "examples" / "good-and-bad.yaml"
    done = guardmark("run", config, "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    printed = " ".join(done.out.split())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (care\w+) \| ([\w ]+) \| (.+?) \| (.+?) \|$", readme, re.MULTILINE)
    assert [row[0] for row in rows] == ["careful", "careless"]
    for name, verdict, attacks, benign in rows:
        assert f"{name} {verdict}: " in printed
        assert f"Lets {attacks} attacks through, blocks {benign} benign inputs" in printed


PLUGIN = ROOT / "examples" / "plugin"


@pytest.mark.parametrize(
    "path", ["src/guardmark_long_words/__init__.py", "tests/test_long_words.py"]
)
def test_the_page_on_plugins_shows_the_template(path: str) -> None:
    """File by file, as it is tested."""
    page = (DOCS / "how-to" / "write-a-plugin.md").read_text(encoding="utf-8")
    shown = re.findall(rf'```python title="{re.escape(path)}"\n(.*?)```', page, re.DOTALL)
    assert shown == [(PLUGIN / path).read_text(encoding="utf-8")]


def test_the_page_on_plugins_shows_the_entry_point() -> None:
    """The lines of the template's own project file."""
    page = (DOCS / "how-to" / "write-a-plugin.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r'```toml title="pyproject.toml"\n(.*?)```', page, re.DOTALL)
    assert shown in (PLUGIN / "pyproject.toml").read_text(encoding="utf-8")
