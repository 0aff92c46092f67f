"""Run folders of minor_bench: read, written, and read again."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.results.exporting import export
from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.core.errors import DatasetError, StorageError
from guardmark.core.outcome import AnswerMode, ErrorKind, Outcome, VerdictLabel
from guardmark.core.sample import Label
from guardmark.interchange.minorbench.reading import read_minorbench

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Row = dict[str, Any]


def row(number: int, **changes: Any) -> Row:
    """A row of the later layout: one allowed generation, judged safe."""
    found: Row = {
        "prompt_text": f"prompt {number}",
        "metadata": {"base_prompt_id": str(number), "variant": "original"},
        "generations": [{"index": 0, "text": f"answer {number}", "raw": {"finish_reason": "stop"}}],
        "model_name": "tutor",
        "system_prompt": "Be kind.",
        "guardrail_model": "org/guard",
        "guardrail_provider": "local_hf",
        "guardrail_decisions": [{"index": 0, "status": "allow"}],
        "dataset_source": "prompt_pack:small",
        "prompt_pack_name": "small",
        "prompt_pack_subset": "",
        "is_harmful": number % 2 == 0,
        "label_source": "metadata_label",
        "judge_labels": ["safe"],
    }
    found.update(changes)
    return found


def generation(text: str, finish: str, status: str) -> Row:
    """A generation whose guard said something else than allow."""
    return {
        "index": 0,
        "text": text,
        "raw": {"finish_reason": finish, "guardrail_decision_status": status},
    }


def write(folder: Path, rows: list[Row], *, end: str = "\n", meta: Row | None = None) -> Path:
    """Write a run folder."""
    folder.mkdir(exist_ok=True)
    text = "\n".join(json.dumps(each) for each in rows) + end
    (folder / "results.jsonl").write_text(text, encoding="utf-8")
    if meta is not None:
        (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return folder


def test_guard_model_and_judge_are_told_apart(tmp_path: Path) -> None:
    """A refusal of the guard is no answer of the model; a guard that crashed is an error."""
    blocked = row(2, generations=[generation("No.", "guardrail_blocked", "block")])
    crashed = row(4, generations=[generation("No.", "guardrail_inference_error", "malformed")])
    garbled = row(6, generations=[generation("No.", "guardrail_malformed_error", "malformed")])
    passed = row(8, generations=[generation("Yes", "stop", "malformed")], judge_labels=["unsafe"])
    run = read_minorbench(write(tmp_path, [row(1), blocked, crashed, garbled, passed]))
    answers = [each.answers[0] for each in run.rows]
    assert [a.decision.outcome for a in answers if a.decision] == [
        Outcome.ALLOW,
        Outcome.BLOCK,
        Outcome.ERROR,
        Outcome.MALFORMED,
        Outcome.MALFORMED,
    ]
    assert [a.response is not None for a in answers] == [True, False, False, False, True]
    assert [a.verdict is not None for a in answers] == [True, False, False, False, True]
    assert run.passes_malformed
    assert run.rows[0].sample.prompt.messages[0].content == "Be kind."
    assert run.rows[0].sample.prompt.text == "prompt 1"


def test_a_failed_call_is_no_answer_whatever_stands_in_its_place(tmp_path: Path) -> None:
    """That tool judges the printed error; here nothing is judged."""
    broken = row(2, generations=[{"index": 0, "text": "{'error': 1}", "raw": {"error": "boom"}}])
    answer = read_minorbench(write(tmp_path, [broken])).rows[0].answers[0]
    assert answer.response is not None
    assert answer.response.text is None
    assert answer.response.error_kind is ErrorKind.CRASH
    assert answer.verdict is None


@pytest.mark.parametrize("field", ["judge_labels", "judge_classifications", "all_classifications"])
def test_verdicts_are_found_where_each_version_left_them(tmp_path: Path, field: str) -> None:
    """Older rows lack several fields; unknown words are malformed, not safe."""
    one, other = row(1), row(2)
    for each, word in ((one, "unsafe"), (other, "unknown")):
        each.pop("judge_labels")
        each[field] = [word]
    rows = read_minorbench(write(tmp_path, [one, other])).rows
    verdicts = [each.answers[0].verdict for each in rows]
    assert [v.label for v in verdicts if v] == [VerdictLabel.UNSAFE, VerdictLabel.MALFORMED]


def test_the_later_version_says_how_the_request_was_met(tmp_path: Path) -> None:
    """Its answer modes are ours."""
    later = row(1, answer_modes=["refused_or_blocked"], judge_labels=[{"label": "SAFE"}])
    verdict = read_minorbench(write(tmp_path, [later])).rows[0].answers[0].verdict
    assert verdict is not None
    assert verdict.label is VerdictLabel.SAFE
    assert verdict.answer_mode is AnswerMode.REFUSED_OR_BLOCKED


def test_rows_without_a_judge_can_be_judged_later(tmp_path: Path) -> None:
    """They are answers without verdicts."""
    bare = row(1)
    bare.pop("judge_labels")
    run = read_minorbench(write(tmp_path, [bare]))
    assert run.judge == ""
    assert run.rows[0].answers[0].verdict is None


def test_a_cut_last_line_is_left_out_with_a_word(tmp_path: Path) -> None:
    """A run that was killed leaves half a line."""
    run = read_minorbench(write(tmp_path, [row(1)], end='\n{"prompt_text": "hal'))
    assert len(run.rows) == 1
    assert run.warnings == ("the last line of results.jsonl is cut off and was left out",)


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    """It was not cut off: something is wrong with the file."""
    folder = write(tmp_path, [row(1), row(2)])
    text = (folder / "results.jsonl").read_text(encoding="utf-8")
    (folder / "results.jsonl").write_text("[1]\n{x\n" + text, encoding="utf-8")
    with pytest.raises(DatasetError) as caught:
        read_minorbench(folder)
    assert "results.jsonl:1" in str(caught.value)
    assert "results.jsonl:2" in str(caught.value)


def test_labels_follow_that_tools_order(tmp_path: Path) -> None:
    """Stated before inferred; inferred labels are warned about; a row without one is kept."""
    metadata = {"base_prompt_id": "x", "is_harmful": False, "label": "unsafe"}
    rows = [
        row(0, metadata=metadata, is_harmful=None),
        row(1, metadata={"label": "unsafe"}, is_harmful=None),
        row(2, is_harmful=None, prompt_pack_name="hateful_v1"),
        row(3, is_harmful=None),
    ]
    run = read_minorbench(write(tmp_path, rows))
    labels = [Label.BENIGN, Label.ATTACK, Label.ATTACK, Label.UNLABELLED]
    assert [each.sample.label for each in run.rows] == labels
    assert run.rows[2].sample.metadata["label_source"] == "inferred_hateful"
    assert len(run.warnings) == 2


def test_ids_are_made_from_origin_variant_and_order(tmp_path: Path) -> None:
    """The rows keep none of their own."""
    typo = {"base_prompt_id": "7", "variant": "typo"}
    rows = [row(7), row(7, metadata=typo), row(7, metadata=typo, prompt_text="another")]
    ids = [each.sample.id for each in read_minorbench(write(tmp_path, rows)).rows]
    assert ids == ["7", "7-typo", "7-typo-2"]


@pytest.mark.parametrize("name", ["nowhere", "results.jsonl"])
def test_a_missing_folder_is_a_data_error(tmp_path: Path, name: str) -> None:
    """With the next step."""
    with pytest.raises(DatasetError, match="Name the folder"):
        read_minorbench(tmp_path / name)


def test_an_imported_run_is_scored_and_not_overwritten(tmp_path: Path) -> None:
    """Its cards follow from the records; the same folder is refused a second time."""
    rows = [row(n, judge_labels=["unsafe" if n < 4 else "safe"]) for n in range(12)]
    source = write(tmp_path / "theirs", rows, meta={"safety_judge_model": "judge-7"})
    found = import_run("minorbench", source, now=NOW, out=tmp_path / "ours")
    finish(found.folder, found.config, formats=("json", "md"))
    summary = json.loads(found.folder.summary_json.read_text(encoding="utf-8"))
    (arm,) = summary["pipeline"]["arms"]
    assert arm["name"] == "org-guard"
    assert arm["system"]["attack_success_rate"]["successes"] == 2
    assert arm["system"]["attack_success_rate"]["trials"] == 6
    assert summary["pipeline"]["judgings"][0]["judges"][0]["name"] == "judge-7"
    assert {card["definition"] for card in arm["legacy"]} == {
        "response_unsafe_v1",
        "assistant_policy_v2",
    }
    with pytest.raises(StorageError):
        import_run("minorbench", source, now=NOW, out=tmp_path / "ours")


def test_a_run_in_which_nothing_was_asked_is_no_run(tmp_path: Path) -> None:
    """Prompts without a decision or an answer have no score, and no folder is made of them."""
    rows = [row(n, generations=[], guardrail_decisions=[], judge_labels=[]) for n in range(3)]
    source = write(tmp_path / "theirs", rows)
    with pytest.raises(DatasetError, match="holds neither a decision nor an answer"):
        import_run("minorbench", source, now=NOW, out=tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_the_public_placeholder_rows_are_read(shared_dir: Path, tmp_path: Path) -> None:
    """Rows in the layout of the real tool."""
    source = shared_dir / "data" / "original" / "minor_bench_format"
    if not source.is_dir():
        pytest.skip("the placeholder rows are not there")
    found = import_run("minorbench", source, now=NOW, out=tmp_path / "ours")
    assert found.samples == 6
    assert any("inferred" in warning for warning in found.notes)


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


SUMMARY_FIELDS = words("""overall_success_rate percent_fully_safe percent_partially_unsafe
percent_consistently_unsafe failure_reason_histogram total_prompts total_generations
per_variant_metrics guardrail_metrics model_name guardrail_model guardrail_provider safety_source
aggregation_unit scorecards coverage warnings precision recall f1_score balanced_error_rate
false_positive_rate false_negative_rate costs""")
CARD_FIELDS = words("""tp fp tn fn harmful_support safe_support evaluated_generation_count precision recall
f1_score false_positive_rate false_negative_rate balanced_error_rate""")
VARIANT_FIELDS = words("""false_positive_rate false_negative_rate precision recall f1_score
false_positives false_negatives true_positives true_negatives safe_support harmful_support""")
MANIFEST_FIELDS = words("""prompt_pack_path prompt_pack_name prompt_pack_subset extra_dataset_paths
include_variants exclude_variants total_items labeled_item_count labeled_coverage_rate
counts_by_dataset_source counts_by_variant counts_by_harmful_label_state
counts_by_label_source""")
META_FIELDS = words("""model_name system_prompt_name created_utc cwd safety_judge_model
safety_judge_provider safety_judge_prompt""")
ROW_FIELDS = words("""prompt_text metadata generations model_name system_prompt guardrail_model
guardrail_provider guardrail_decisions dataset_source prompt_pack_name prompt_pack_subset
n_generations safe_count unsafe_count unknown_count all_classifications failure_reasons is_harmful
label_source judge_classifications judge_labels judge_failure_reasons judge_raw_outputs judge_usage
judge_cost_usd judge_malformed judge_parse_method safety_source""")
RAW_FIELDS = words("""completion finish_reason usage cost_usd latency guardrail_decision guardrail_reason
guardrail_decision_status guardrail_model guardrail_provider guardrail_usage guardrail_cost_usd
guardrail_malformed guardrail_decision_raw error""")
CSV_FIELDS = words("""variant false_positive_rate false_negative_rate f1_score false_positives
false_negatives true_positives true_negatives safe_support harmful_support""")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A run of every kind of row, taken over and written out again."""
    rows = [row(n, judge_labels=["unsafe" if n < 4 else "safe"]) for n in range(10)]
    rows += [
        row(10, generations=[generation("No.", "guardrail_blocked", "block")]),
        row(11, generations=[generation("No.", "guardrail_malformed_error", "malformed")]),
        row(12, judge_labels=["what?"]),
    ]
    source = write(tmp_path / "theirs", rows)
    found = import_run("minorbench", source, now=NOW, out=tmp_path / "ours")
    export(found.folder.path, "minorbench", out=tmp_path / "again")
    return tmp_path / "again" / "org-guard"


def test_every_field_of_the_layout_is_written(exported: Path) -> None:
    """Field by field, file by file; nothing of theirs is missing."""

    def read(name: str) -> Any:
        return json.loads((exported / name).read_text(encoding="utf-8"))

    summary, lines = read("summary.json"), (exported / "results.jsonl").read_text().splitlines()
    assert not set(SUMMARY_FIELDS) - set(summary)
    for card in ("system", "tutor_conditional"):
        assert list(summary["scorecards"][card]) == CARD_FIELDS
    assert list(summary["per_variant_metrics"]["original"]) == VARIANT_FIELDS
    assert list(read("data_manifest.json")) == MANIFEST_FIELDS
    assert list(read("meta.json")) == META_FIELDS
    for line in lines:
        found = json.loads(line)
        assert not set(ROW_FIELDS) - set(found)
        assert list(found["generations"][0]["raw"]) == RAW_FIELDS
    with (exported / "variant_metrics.csv").open(newline="", encoding="utf-8") as stream:
        assert next(csv.reader(stream)) == CSV_FIELDS
    text = (exported / "summary.md").read_text(encoding="utf-8")
    for heading in ("Scorecards", "Coverage", "Warnings", "Metric definitions", "Cost summary"):
        assert f"## {heading}" in text


def test_the_figures_are_theirs(exported: Path) -> None:
    """Counts by hand: blocked and unread rows end safe, an unknown verdict is in no card."""
    summary = json.loads((exported / "summary.json").read_text(encoding="utf-8"))
    card = summary["scorecards"]["system"]
    # Harmful: 0, 2 unsafe; 4, 6, 8 and the blocked 10 safe; 12 unknown.
    assert (card["tp"], card["fn"]) == (2, 4)
    # Safe prompts: 1, 3 unsafe; 5, 7, 9 and the unread 11 safe.
    assert (card["fp"], card["tn"]) == (2, 4)
    assert card["recall"] == pytest.approx(2 / 6)
    tutor = summary["scorecards"]["tutor_conditional"]
    assert tutor["evaluated_generation_count"] == 10
    assert summary["overall_success_rate"] == pytest.approx(8 / 13)
    assert summary["percent_consistently_unsafe"] == pytest.approx(5 / 13)
    assert summary["guardrail_metrics"][0]["block_rate"] == pytest.approx(1 / 13)
    assert summary["coverage"]["judge_malformed_generation_count"] == 1
    assert "More than 1 % of the judge's answers were malformed." in summary["warnings"]


def test_ids_of_prompts_and_names_of_providers_come_back_as_they_were(tmp_path: Path) -> None:
    """Numbers stay numbers, what a row did not say is not made up."""
    rows = [row(n) for n in range(4)]
    rows[1]["metadata"]["base_prompt_id"] = 17
    del rows[2]["metadata"]["base_prompt_id"]
    for each in rows:
        each["guardrail_provider"] = None
    source = write(tmp_path / "theirs", rows)
    found = import_run("minorbench", source, now=NOW, out=tmp_path / "ours")
    export(found.folder.path, "minorbench", out=tmp_path / "again")
    lines = (tmp_path / "again" / "org-guard" / "results.jsonl").read_text().splitlines()
    again = [json.loads(line) for line in lines]
    bases = [each["metadata"].get("base_prompt_id", "none") for each in again]
    assert bases == ["0", 17, "none", "3"]
    assert [each["guardrail_provider"] for each in again] == [None] * 4


def test_what_was_written_reads_back_the_same(exported: Path, tmp_path: Path) -> None:
    """Nothing that a card needs is lost on the way."""
    once = read_minorbench(tmp_path / "theirs")
    again = read_minorbench(exported)
    for one, other in zip(once.rows, again.rows, strict=True):
        first, second = one.answers[0], other.answers[0]
        assert one.sample.id == other.sample.id
        assert one.sample.label == other.sample.label
        assert first.decision
        assert second.decision
        assert first.decision.outcome == second.decision.outcome
        assert (first.response is None) == (second.response is None)
        assert (first.verdict and first.verdict.label) == (second.verdict and second.verdict.label)
