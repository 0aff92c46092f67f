"""Attacks by gradient: ours and those of other packages, named in a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark, set_up

from guardmark.app.parts.building import build_defenses, build_gradient
from guardmark.app.parts.loading import config_schema, parse_config
from guardmark.core.errors import ConfigError

CONFIG = """\
version: 1
data: [{builtin: core}]
defenses:
  words: {type: pattern, builtin: true}
adaptive:
  gradient: {type: %s}
"""
PLUGIN = """\
from pydantic import BaseModel


class Settings(BaseModel):
    depth: int = 3

    def build(self, name, context):
        return self
"""


@pytest.mark.slow
def test_an_attack_of_another_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """It is listed beside ours, and a configuration may name it."""
    folder = tmp_path / "plugin"
    (folder / "steep-1.0.dist-info").mkdir(parents=True)
    (folder / "steep.py").write_text(PLUGIN, encoding="utf-8")
    (folder / "steep-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: steep\nVersion: 1.0\n", encoding="utf-8"
    )
    (folder / "steep-1.0.dist-info" / "entry_points.txt").write_text(
        "[guardmark.gradient_attacks]\ndescent = steep:Settings\n", encoding="utf-8"
    )
    known = {"PYTHONPATH": str(folder)}
    done = guardmark("plugins", "--json", cwd=tmp_path, env=known)
    assert json.loads(done.out)["gradient"] == {
        "descent": "steep:Settings",
        "hotflip": "guardmark.attacks.hotflip:HotFlipSettings",
    }
    config = set_up(tmp_path, CONFIG % "descent, depth: deep")
    done = guardmark("adapt", config, "-o", "out", cwd=tmp_path, env=known)
    assert done.code == 2
    assert "depth" in done.err


def test_an_unknown_attack_is_told_with_a_near_one() -> None:
    """The mistake stands where the person wrote it."""
    with pytest.raises(ConfigError, match=r"(?s)hotflop.*hotflip"):
        parse_config(CONFIG % "hotflop", folder=Path.cwd(), shown_as="here.yaml")


def test_a_configuration_without_one_builds_none() -> None:
    """The arm is optional."""
    text = CONFIG.split("adaptive:", maxsplit=1)[0]
    loaded = parse_config(text, folder=Path.cwd(), shown_as="here.yaml")
    assert build_gradient(loaded, build_defenses(loaded, None)) is None


def test_the_schema_of_a_configuration_knows_the_settings() -> None:
    """Editors that read it complete the type and its settings."""
    definitions = config_schema()["$defs"]
    assert definitions["gradient.hotflip"]["properties"]["type"]["const"] == "hotflip"
    assert {"$ref": "#/$defs/gradient"} in definitions["AdaptiveSettings"]["properties"][
        "gradient"
    ]["anyOf"]
