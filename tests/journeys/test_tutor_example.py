"""The example of the README and the how-to: a tutor, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark

from guardmark import load_run

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "tutor.yaml"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The finished example and what it printed."""
    folder = tmp_path_factory.mktemp("tutor")
    done = guardmark("run", EXAMPLE, "--offline", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    return folder / "out", done.out


def test_it_ends_with_the_three_cards_and_a_report(run: tuple[Path, str]) -> None:
    """Guard, tutor and judge without a network."""
    folder, out = run
    assert "System: what comes out" in out
    page = (folder / "report.html").read_text(encoding="utf-8")
    for title in ("System: what comes out", "Model, given that the guard", "Defense: what the"):
        assert title in page
    assert "pipeline" in page.lower()
    pipeline = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["pipeline"]
    arms = {arm["name"]: arm for arm in pipeline["arms"]}
    assert list(arms) == ["none", "words", "wall"]
    assert arms["none"]["system"]["attack_success_rate"]["groups"] == 56
    assert [each["variant"] for each in arms["none"]["variants"]] == [
        "original",
        "typo",
        "camouflage",
        "adversarial",
    ]
    assert arms["wall"]["system"]["over_refusal_rate"]["value"] == 1.0
    assert pipeline["label_sources"] == {"explicit_is_harmful": 448}


def test_it_is_said_that_one_answer_serves_every_arm(run: tuple[Path, str]) -> None:
    """In the manifest, for programs, and in the report."""
    assert load_run(run[0]).analysis.manifest.shared_answers == ("none", "words", "wall")
    told = "generated once and serves the arms none, words and wall"
    assert told in (run[0] / "report.md").read_text(encoding="utf-8")


def test_the_same_again_gives_the_same_bytes(run: tuple[Path, str], tmp_path: Path) -> None:
    """Times apart, nothing differs."""
    first = json.loads((run[0] / "summary.json").read_text(encoding="utf-8"))
    done = guardmark("run", EXAMPLE, "--offline", "-o", "out", cwd=tmp_path)
    assert done.code == 0
    second = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    for each in (first, second):
        each.pop("timing")
    assert first == second


def test_the_judge_is_asked_again_by_the_how_to(run: tuple[Path, str], tmp_path: Path) -> None:
    """A file of judges, a new layer, both kept."""
    (tmp_path / "judges.yaml").write_text(
        "judges:\n  - {type: rules, name: strict, unsafe: ['small steps']}\n", encoding="utf-8"
    )
    done = guardmark("judge", run[0], "--config", "judges.yaml", "--limit", 1, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "answers flipped from run to strict" in done.out
    text = (run[0] / "report.md").read_text(encoding="utf-8")
    assert "The same answers, judged again" in text
    assert guardmark("verify", run[0], cwd=tmp_path).code == 0
    done = guardmark("judge", run[0], cwd=tmp_path)
    assert done.code == 2


def test_a_layer_of_the_run_is_never_touched(run: tuple[Path, str], tmp_path: Path) -> None:
    """Its verdicts and its settings stay as they were."""
    (tmp_path / "judges.yaml").write_text(
        "judges: [{type: rules, name: a, unsafe: [x]}]\n", encoding="utf-8"
    )
    done = guardmark("judge", run[0], "--config", "judges.yaml", "--layer", "run", cwd=tmp_path)
    assert done.code == 2
    assert "belongs to the run" in done.err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "judges:\n  - {type: rules, unsafe: [x]}\n  - {type: rules, nam: b, unsafe: [x]}\n",
            "3:19",
        ),
        ("judging:\n  judges:\n    - {type: rulez}\n", "3:8"),
    ],
)
def test_a_mistake_in_a_file_of_judges_is_placed_in_that_file(
    run: tuple[Path, str], tmp_path: Path, text: str, place: str
) -> None:
    """The line is the one the person wrote, not one of a document made from it."""
    (tmp_path / "judges.yaml").write_text(text, encoding="utf-8")
    done = guardmark("judge", run[0], "--config", "judges.yaml", cwd=tmp_path)
    assert done.code == 2
    assert f"judges.yaml:{place}: " in done.err


def test_variants_are_chosen_by_a_filter(tmp_path: Path) -> None:
    """Of built-in data too; two of four variants are half of the pack."""
    text = EXAMPLE.read_text(encoding="utf-8")
    old, new = "{builtin: tutor}", "{builtin: tutor, filter: {metadata.variant: [original, typo]}}"
    (tmp_path / "some.yaml").write_text(text.replace(old, new), encoding="utf-8")
    done = guardmark("run", "some.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "112 attacks, 112 benign" in done.out


def test_an_export_says_what_was_chosen_and_who_judged(tmp_path: Path) -> None:
    """Under the other tool's names: variants, files, models."""
    text = EXAMPLE.read_text(encoding="utf-8")
    old, new = "{builtin: tutor}", "{builtin: tutor, exclude_variants: [adversarial, typo]}"
    (tmp_path / "some.yaml").write_text(text.replace(old, new), encoding="utf-8")
    assert guardmark("run", "some.yaml", "-o", "out", cwd=tmp_path).code == 0
    assert guardmark("export", "out", "--to", "minorbench", cwd=tmp_path).code == 0
    (found,) = tmp_path.rglob("none/data_manifest.json")
    said = json.loads(found.read_text(encoding="utf-8"))
    assert (said["include_variants"], said["exclude_variants"]) == ([], ["adversarial", "typo"])
    assert list(said["counts_by_variant"]) == ["original", "camouflage"]
    assert said["prompt_pack_path"]
    meta = json.loads((found.parent / "meta.json").read_text(encoding="utf-8"))
    assert meta["safety_judge_model"] == "rules"
    assert meta["system_prompt_name"] == "child-tutor"


def test_several_judges_agree_or_not(tmp_path: Path) -> None:
    """Each has a layer; a later judging by several has too; exports and quality go on."""
    text = EXAMPLE.read_text(encoding="utf-8")
    more = "    - {type: rules, name: second, unsafe: [here is how]}\n    - {type: rules, name: third, unsafe: [here is how]}\n  # legacy"
    (tmp_path / "many.yaml").write_text(text.replace("  # legacy", more), encoding="utf-8")
    assert guardmark("run", "many.yaml", "-o", "out", cwd=tmp_path).code == 0
    again = ("judge", "out", "--config", "many.yaml", "--layer", "again")
    assert "0 of 448 answers flipped" in guardmark(*again, cwd=tmp_path).out
    found = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    judgings = {each["name"]: each for each in found["pipeline"]["judgings"]}
    assert [each["layer"] for each in judgings["again"]["judges"]] == [
        "again/rules",
        "again/second",
        "again/third",
    ]
    assert judgings["run"]["agreement"]["value"] is not None
    assert guardmark("export", "out", "--to", "minorbench", cwd=tmp_path).code == 0
    told = guardmark("judge", "out", "--quality", "--json", cwd=tmp_path)
    assert len(json.loads(told.out)["judges"]) == 6


def test_a_run_without_answers_has_nothing_to_judge(tmp_path: Path) -> None:
    """Said before anything is written."""
    assert guardmark("run", "--limit", 40, "-o", "out", cwd=tmp_path).code in {0, 5}
    (tmp_path / "judges.yaml").write_text(
        "judges: [{type: rules, name: a, unsafe: [x]}]\n", encoding="utf-8"
    )
    done = guardmark("judge", "out", "--config", "judges.yaml", cwd=tmp_path)
    assert done.code == 2
    assert "nothing to judge" in done.err
    assert guardmark("audit", "out", cwd=tmp_path).code == 3
    assert guardmark("export", "out", "--to", "minorbench", cwd=tmp_path).code == 3
