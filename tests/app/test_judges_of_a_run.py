"""Judges for a run that is there: what they are told is what the run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.small_runs import attack, make_manifest

from guardmark.app.labels.judging import load_judges
from guardmark.app.parts.loading import load_config
from guardmark.core.errors import ConfigError, StoreError
from guardmark.core.manifest import PartManifest, RunManifest

JUDGES = "judges: [{type: rules, name: rules, canaries: true}]\n"
WHOLE = """\
version: 1
data: [{builtin: tutor}]
pipeline:
  model: {type: scripted, system_prompt_file: told.txt}
  judges: [{type: rules, name: rules, canaries: true}]
"""


def run_of(**model: object) -> RunManifest:
    """The manifest of a run whose target model had some settings."""
    part = PartManifest(name="model", kind="model", type="scripted", settings=model)
    return make_manifest([], [attack(0)], parts=(part,))


def written(folder: Path, text: str) -> Path:
    """A file of judges."""
    path = folder / "judges.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def told(path: Path, manifest: RunManifest) -> object:
    """The system prompt that judges are told of a run."""
    loaded = load_judges(path, manifest, announce=lambda _line: None)
    assert loaded.config.pipeline is not None
    return loaded.config.pipeline.model["system_prompt"]


@pytest.mark.parametrize(
    "text",
    ["judges: []\n", "version: 1\ndata: [{builtin: tutor}]\npipeline: {model: {type: scripted}}\n"],
)
def test_a_file_without_a_judge_says_where_one_is_named(tmp_path: Path, text: str) -> None:
    """Nothing would be judged, and no layer made."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=r"judges\.yaml names no judge.\nNext: list one under"):
        load_judges(path, run_of(), announce=lambda _line: None)


def test_a_text_that_the_run_keeps_is_what_judges_are_told(tmp_path: Path) -> None:
    """Whatever the file says by now that it once came from."""
    path = written(tmp_path, JUDGES)
    assert told(path, run_of(system_prompt="Be kind.", system_prompt_file="p.txt")) == "Be kind."
    assert told(path, run_of()) == ""


def test_a_file_that_only_the_folder_names_is_not_read(tmp_path: Path) -> None:
    """An older run keeps the name alone; the configuration of the run may name it, no other."""
    (tmp_path / "told.txt").write_text("Be kind.", encoding="utf-8")
    path = written(tmp_path, WHOLE)
    kept = load_config(path).parts["pipeline", "model"].model_dump(mode="json")
    assert told(path, run_of(**kept)) == "Be kind."
    for text, settings in (
        (JUDGES, kept),
        (WHOLE, {**kept, "system_prompt_file": "../private.txt"}),
    ):
        with pytest.raises(ConfigError, match="in a file it does not hold") as refused:
            told(written(tmp_path, text), run_of(**settings))
        assert repr(settings["system_prompt_file"]) in str(refused.value)
        assert "No file is read because a folder names it." in str(refused.value)


def test_a_kept_system_prompt_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Nobody knows what the model was told."""
    with pytest.raises(StoreError, match="'small': its system prompt is not text"):
        told(written(tmp_path, JUDGES), run_of(system_prompt=["Be kind."]))
