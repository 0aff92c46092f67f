"""Profiles by name: in lists, in `run --defense`, and on the page that tells of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tests.journeys.command_line import guardmark

from guardmark.app.parts.loading import builtin_config, parse_config
from guardmark.app.registry import settings_model
from guardmark.core.errors import ConfigError
from guardmark.core.sample import Prompt
from guardmark.defenses.classifier import (
    ClassifierDefense,
    ClassifierSettings,
    classifier_profile,
)
from guardmark.defenses.profile import kind_of_profile, list_profiles, profile_names
from guardmark.inference.classifier import ClassScore

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "measure-a-known-guard.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
WHOLE = [text for text in SNIPPETS if text.startswith("version")]
PARTS = [text for text in SNIPPETS if not text.startswith("version")]
ENTRIES = list_profiles()


def test_no_two_profiles_share_a_name() -> None:
    """Whatever their kind: `--defense NAME` must mean one thing."""
    names = [entry.name for entry in ENTRIES]
    assert len(names) == len(set(names))
    assert {kind_of_profile(name) for name in names} == {"service", "guard-model", "classifier"}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_names_licence_and_source(entry: Any) -> None:
    """Nobody has to open a file to know the terms."""
    assert entry.about
    assert entry.licence
    assert entry.source == "guardmark" or entry.source.startswith("https://")


@pytest.mark.parametrize("name", profile_names("classifier"))
def test_a_classifier_takes_labels_and_threshold_from_its_profile(name: str) -> None:
    """The folder of the model is all that a configuration adds; what it says goes before."""
    profile = classifier_profile(name)
    assert profile.source.read is not None
    settings = ClassifierSettings.model_validate({"profile": name, "path": "model"})
    assert (settings.positive, settings.threshold) == (
        profile.settings["positive"],
        profile.settings["threshold"],
    )
    said = {"profile": name, "path": "model", "threshold": 0.25}
    assert ClassifierSettings.model_validate(said).threshold == 0.25


def test_a_classifier_profile_that_does_not_exist_is_named_with_the_near_ones() -> None:
    """Before a model is looked for."""
    with pytest.raises(ValidationError, match=r"classifier profile.*Did you mean 'piguard'"):
        ClassifierSettings.model_validate({"profile": "pigard", "path": "model"})


class RecordedScores:
    """What a model said of one text, label by label."""

    def __init__(self, scores: dict[str, float], positive: list[str]) -> None:
        self._score = ClassScore(probability=sum(scores[each] for each in positive), tokens=9)

    def scores(self, texts: Sequence[str]) -> list[ClassScore]:
        """Say it of every text."""
        return [self._score] * len(texts)


@pytest.mark.parametrize("name", profile_names("classifier"))
async def test_a_classifier_decides_as_its_recorded_examples_state(name: str) -> None:
    """By the sum of the positive labels and the profile's own threshold, either way."""
    profile = classifier_profile(name)
    settings = ClassifierSettings.model_validate({"profile": name, "path": "model"})
    assert {each.outcome for each in profile.examples} == {"allow", "block"}
    for example in profile.examples:
        assert sum(example.scores.values()) == pytest.approx(1)
        assert set(settings.positive) < example.scores.keys()
        recorded: Any = RecordedScores(example.scores, settings.positive)
        defense = ClassifierDefense(name, recorded, threshold=settings.threshold)
        (decision,) = await defense.decide_batch([Prompt.of_text("a text")])
        await defense.close()
        assert decision.outcome == example.outcome


def test_profiles_and_builtin_defenses_are_measured_by_name() -> None:
    """On the built-in data, without a configuration."""
    loaded = builtin_config(["lakera", "pattern"])
    assert list(loaded.config.defenses) == ["lakera", "pattern"]
    assert loaded.config.defenses["lakera"] == {"type": "http", "profile": "lakera"}
    with pytest.raises(ConfigError, match="Did you mean 'lakera'"):
        builtin_config(["lakra"])
    with pytest.raises(ConfigError, match="path"):
        builtin_config(["piguard"])


@pytest.mark.slow
def test_a_missing_key_is_told_before_anything_else(tmp_path: Path) -> None:
    """By the name of its variable; and the list of profiles names it, too."""
    done = guardmark("run", "--defense", "lakera", cwd=tmp_path, env={"LAKERA_GUARD_API_KEY": ""})
    assert done.code == 2
    assert "LAKERA_GUARD_API_KEY" in done.err
    listed = guardmark("plugins", "--profiles", cwd=tmp_path).out
    assert "LAKERA_GUARD_API_KEY" in listed
    as_json = json.loads(guardmark("plugins", "--profiles", "--json", cwd=tmp_path).out)
    assert {entry["name"] for entry in as_json} == {entry.name for entry in ENTRIES}
    refused = guardmark("run", "x.yaml", "--defense", "lakera", cwd=tmp_path)
    assert "--only" in refused.err


@pytest.mark.parametrize("text", PARTS)
def test_a_defense_on_the_page_is_sound(text: str) -> None:
    """With the settings of its type."""
    settings = yaml.safe_load(text)
    assert settings_model("defense", settings.pop("type")).model_validate(settings)


@pytest.mark.parametrize("text", WHOLE)
def test_a_configuration_on_the_page_is_sound(text: str) -> None:
    """As the page shows it."""
    loaded = parse_config(text, folder=ROOT, shown_as="page")
    assert set(loaded.config.defenses) == set(yaml.safe_load(text)["defenses"])
