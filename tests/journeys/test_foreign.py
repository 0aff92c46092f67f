"""What others wrote, as public reports describe it: every unknown is counted, nothing turned round."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import Done, guardmark

pytestmark = pytest.mark.slow


@pytest.fixture
def foreign(shared_dir: Path, tmp_path: Path) -> Path:
    """A copy of the small files of others that lie beside the project."""
    shutil.copytree(shared_dir / "cases" / "foreign", tmp_path / "foreign")
    return tmp_path / "foreign"


def imported(foreign: Path, tool: str, name: str, *more: str) -> tuple[Done, dict[str, Any]]:
    """Import a file and return what was printed, and the rates of the only arm."""
    done = guardmark("import", tool, name, "-o", "out", *more, cwd=foreign)
    assert done.code == 0, done.err
    summary = json.loads((foreign / "out" / "summary.json").read_text(encoding="utf-8"))
    if summary.get("pipeline"):
        return done, summary["pipeline"]["arms"][0]["system"]
    return done, summary["defenses"][0]["rates"]


HARM = ("--unsafe", "harm>=0.5")


def test_a_score_that_is_no_number_is_no_verdict(foreign: Path) -> None:
    """Fifteen of twenty were not scored: they are unknown, not safe."""
    _, rates = imported(foreign, "inspect", "insp_nan.json", "--label", "attack", *HARM)
    rate = rates["attack_success_rate"]
    assert (rate["successes"], rate["trials"]) == (5, 5)


def test_a_gate_does_not_pass_where_nothing_was_scored(foreign: Path) -> None:
    """200 samples whose scorer answered NaN."""
    imported(foreign, "inspect", "insp_allnan.json", "--label", "attack", *HARM)
    (foreign / "p.yaml").write_text("system: {asr_upper: 0.05}\n", encoding="utf-8")
    assert guardmark("gate", "out", "--policy", "p.yaml", cwd=foreign).code != 0


def test_the_number_1_and_the_text_1_are_two_samples(foreign: Path) -> None:
    """Not two epochs of one."""
    done, rates = imported(foreign, "inspect", "insp_ids.json", "--label", "attack", *HARM)
    assert rates["attack_success_rate"]["trials"] == 20
    assert "20 attacks" in done.out


@pytest.mark.parametrize("stated", [(), ("--label", "attack")])
def test_a_label_that_is_there_is_never_overridden(foreign: Path, stated: tuple[str, ...]) -> None:
    """Safe and unsafe are labels too."""
    done, _ = imported(foreign, "inspect", "insp_words.json", *HARM, *stated)
    assert "10 attacks, 10 benign" in done.out


@pytest.mark.parametrize("name", ["pf_xstest.json", "pf_utf16.json"])
def test_harmless_questions_of_a_red_team_are_benign(foreign: Path, name: str) -> None:
    """In UTF-8 and UTF-16 alike."""
    _, rates = imported(foreign, "promptfoo", name)
    assert (rates["attack_success_rate"]["successes"], rates["attack_success_rate"]["trials"]) == (
        0,
        10,
    )
    assert (rates["over_refusal_rate"]["successes"], rates["over_refusal_rate"]["trials"]) == (
        12,
        20,
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("garak_cut", "34 of 40 attempts were begun and never judged"),
        ("garak_cut", "has no end mark"),
        ("garak_short", "gave nothing for 20 of 20 outputs"),
        ("garak_ext", "mitigation.MitigationBypass beside it hit 20 of 20"),
    ],
)
def test_what_a_report_of_garak_lacks_is_said(foreign: Path, name: str, words: str) -> None:
    """Attempts never judged, a detector that gave nothing, which detector makes the figure."""
    done, rates = imported(foreign, "garak", f"{name}.report.jsonl")
    assert words in done.err
    trials = {"garak_cut": 6, "garak_short": 0, "garak_ext": 20}[name]
    assert rates["attack_success_rate"]["trials"] == trials
    assert rates["attack_success_rate"]["successes"] == 0


def test_an_image_is_never_taken_for_a_text(foreign: Path) -> None:
    """A path is no prompt."""
    done = guardmark("import", "pyrit", "py_image.db", "-o", "out", cwd=foreign)
    assert done.code == 3
    assert "10 attacks with an image" in done.err


def test_a_column_named_is_safe_means_benign_where_it_is_true(foreign: Path) -> None:
    """Polarity is read off the name."""
    done = guardmark("run", "b_issafe.yaml", "-o", "out", cwd=foreign)
    assert done.code == 0, done.err
    rates = json.loads((foreign / "out" / "summary.json").read_text("utf-8"))["defenses"][0][
        "rates"
    ]
    assert rates["attack_success_rate"]["successes"] == 0
    assert rates["false_positive_rate"]["successes"] == 0


def test_numbers_with_a_point_are_labels(foreign: Path) -> None:
    """As pandas writes a column with a gap."""
    done, _ = imported(foreign, "table", "t_float2.csv")
    assert "10 attacks, 10 benign" in done.out


def test_scores_that_contradict_the_decisions_are_told(foreign: Path) -> None:
    """A certainty was read as a risk."""
    done, _ = imported(foreign, "table", "t_conf2.csv")
    assert "the scores contradict the decisions" in done.err


def test_which_column_was_taken_for_what_is_said(foreign: Path) -> None:
    """Passed may mean the guard let it through, or the test went well."""
    done, _ = imported(foreign, "table", "t_passed.csv")
    assert "the decision was read from the column 'passed': true = allowed" in done.err


def test_equal_texts_with_opposite_labels_are_told(foreign: Path) -> None:
    """No guard can decide both rightly."""
    done = guardmark("run", "m_twouser.yaml", "-o", "out", cwd=foreign)
    assert "was shown equal texts with opposite labels" in done.err


@pytest.mark.parametrize(
    "name", ["d_sharegpt.jsonl", "d_promptlist.jsonl", "m_ollama.jsonl", "m_responses.jsonl"]
)
def test_conversations_are_read_as_others_write_them(foreign: Path, name: str) -> None:
    """ShareGPT, a list as prompt, Ollama and the Responses API."""
    done = guardmark("data", "check", name, cwd=foreign)
    assert "cannot be used" not in done.out + done.err
    assert "benign" in done.out


def test_a_yaml_list_is_data(foreign: Path) -> None:
    """As PINT keeps its prompts."""
    done = guardmark("data", "check", "d_pint.yaml", cwd=foreign)
    assert done.code == 0, done.err
    assert "10 attacks" in done.out
    assert "categories that are not declared: 'prompt_injection'" in " ".join(done.out.split())


def test_a_context_beside_the_prompt_is_not_passed_over_in_silence(foreign: Path) -> None:
    """HarmBench keeps it in a column of its own."""
    words = ("--map", "text=Behavior", "--label", "attack", "--open-categories")
    done = guardmark("data", "check", "d_harmbench.csv", *words, cwd=foreign)
    assert "ContextString, which is not part of the prompt" in " ".join(done.out.split())
