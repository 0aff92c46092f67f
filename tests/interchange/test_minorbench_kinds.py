"""A folder of minor_bench of each kind, taken over, written out and taken over again."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.results.exporting import export
from guardmark.app.results.opened_run import find_run
from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import StoreError

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Row = dict[str, Any]
Counts = tuple[int, int, int, int]

META = {
    "model_name": "org/tutor",
    "system_prompt_name": "kind",
    "created_utc": "2025-05-01T10:00:00Z",
    "safety_judge_model": "org/judge",
    "safety_judge_provider": "scaleway",
    "safety_judge_prompt": "judge.txt",
}
PACK = {"prompt_pack_path": "packs/small.json", "include_variants": ["original"]}
TOKENS = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
STOPPED = {"block": "guardrail_blocked", "malformed": "guardrail_malformed_error"}


def row(number: int, *, guard: str = "org/guard", says: str = "", **changes: Any) -> Row:
    """A row of two generations: every second one harmful, some unsafe, some stopped by a guard."""
    says = says or ("block" if guard and number % 5 == 4 else "allow")
    labels = ["unsafe" if number % 3 == 0 else "safe", "unknown" if number == 6 else "safe"]
    if says != "allow":
        labels = ["safe", "safe"]  # what its judge says of a refusal
    raw: Row = {"finish_reason": STOPPED.get(says, "stop")}
    if guard:
        raw["guardrail_decision_status"] = says
    texts = ["No." if says in STOPPED else f"answer {number}, {n}" for n in range(2)]
    return {
        "prompt_text": f"prompt {number}",
        "metadata": {
            "base_prompt_id": str(number // 2),
            "variant": ("original", "typo")[number % 2],
        },
        "generations": [{"index": n, "text": text, "raw": raw} for n, text in enumerate(texts)],
        "model_name": "org/tutor",
        "system_prompt": "Be kind.",
        "guardrail_model": guard or None,
        "guardrail_provider": "local_hf" if guard else None,
        "guardrail_decisions": [{"index": n, "status": says} for n in range(2)] if guard else [],
        "dataset_source": "prompt_pack:small",
        "prompt_pack_name": "small",
        "prompt_pack_subset": "",
        "is_harmful": number % 2 == 0,
        "label_source": "explicit_is_harmful",
        "judge_labels": labels,
        "all_classifications": labels,
        **changes,
    }


def with_tokens(rows: list[Row]) -> list[Row]:
    """The same with tokens, costs and times of guard, tutor and judge."""
    for each in rows:
        each |= {"judge_usage": [TOKENS, TOKENS], "judge_cost_usd": [0.25, 0.25]}
        for generation in each["generations"]:
            passed = generation["raw"]["finish_reason"] == "stop"
            tutor = {"usage": TOKENS, "cost_usd": 0.5, "latency": 1.5} if passed else {}
            guard = {"guardrail_usage": TOKENS, "guardrail_cost_usd": 0.125}
            generation["raw"] = {**generation["raw"], **guard, **tutor}
    return rows


def old(rows: list[Row]) -> list[Row]:
    """The first layout: rules called the answers safe or unsafe, and no guard was there."""
    for each in rows:
        for field in ("judge_labels", "guardrail_provider", "guardrail_decisions", "label_source"):
            del each[field]
    return rows


def unlabelled(rows: list[Row]) -> list[Row]:
    """Two rows whose label nobody states."""
    return [*rows, *(row(n, is_harmful=None, label_source="unknown") for n in (20, 21))]


MODES = ["answered", "refused_or_blocked"]
KINDS: dict[str, list[Row]] = {
    "old": old([row(n, guard="") for n in range(12)]),
    "head": [row(n, answer_modes=MODES) for n in range(12)],
    "two guards": [row(n, guard=f"org/guard-{n // 8}") for n in range(16)],
    "all blocked": [row(n, says="block") for n in range(12)],
    "mumbling": [row(n, says="malformed" if n % 4 else "allow") for n in range(12)],
    "unlabelled": unlabelled([row(n, judge_malformed=[False, False]) for n in range(12)]),
    "with tokens": with_tokens([row(n) for n in range(12)]),
    "cut off": [row(n) for n in range(12)],
}


def lay(folder: Path, kind: str) -> Path:
    """Write a folder of a kind."""
    folder.mkdir()
    end = '\n{"prompt_text": "hal' if kind == "cut off" else "\n"
    text = "\n".join(map(json.dumps, KINDS[kind])) + end
    (folder / "results.jsonl").write_text(text, encoding="utf-8")
    if kind != "old":
        (folder / "meta.json").write_text(json.dumps(META), encoding="utf-8")
        (folder / "data_manifest.json").write_text(json.dumps(PACK), encoding="utf-8")
    return folder


def ends(rows: list[Row]) -> list[tuple[bool, str, str]]:
    """Label, verdict and status of the guard of every generation with a label, as that tool reads."""
    return [
        (each["is_harmful"], label, each["generations"][n]["raw"].get(_STATUS, "allow"))
        for each in rows
        if each["is_harmful"] is not None
        for n, label in enumerate(each["all_classifications"])
    ]


_STATUS = "guardrail_decision_status"


def card(rows: list[Row], *, is_tutor: bool = False) -> Counts:
    """True and false positives, true and false negatives: a positive is an unsafe answer."""
    counts = Counter(
        (harmful, label)
        for harmful, label, status in ends(rows)
        if not is_tutor or status == "allow"
    )
    return (
        counts[True, "unsafe"],
        counts[False, "unsafe"],
        counts[False, "safe"],
        counts[True, "safe"],
    )


def read(path: Path) -> dict[str, Any]:
    """A JSON document."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def counted(written: dict[str, Any]) -> Counts:
    """The counts of one of their cards."""
    return written["tp"], written["fp"], written["tn"], written["fn"]


def guards_of(kind: str) -> list[str]:
    """The guards of a kind, or none."""
    return list(dict.fromkeys(each["guardrail_model"] or "none" for each in KINDS[kind]))


def take_over(source: Path, out: Path) -> dict[str, Any]:
    """Import a folder, verify the run and return its summary."""
    found = import_run("minorbench", source, now=NOW, out=out)
    finish(found.folder, found.config, formats=("json", "md"))
    checked = verify(out, data=[out.parent])
    assert checked.holds, [*checked.damage, *map(str, checked.mismatches)]
    return read(out / "summary.json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_each_kind_keeps_its_figures(tmp_path: Path, kind: str) -> None:
    """Theirs, in the report, in the export, and after a second journey."""
    ours = take_over(lay(tmp_path / "theirs", kind), tmp_path / "ours")
    export(tmp_path / "ours", "minorbench", out=tmp_path / "back")
    arms = {each["name"]: each for each in ours["pipeline"]["arms"]}
    assert len(arms) == len(guards_of(kind))
    for number, guard in enumerate(guards_of(kind)):
        mine = [each for each in KINDS[kind] if (each["guardrail_model"] or "none") == guard]
        name = guard.replace("/", "-")
        legacy = {
            each["scope"]: each
            for each in arms[name]["legacy"]
            if each["definition"] == "response_unsafe_v1"
        }
        folder = tmp_path / "back" / name
        written = read(folder / "summary.json")
        for scope, theirs, is_tutor in (
            ("system", "system", False),
            ("model", "tutor_conditional", True),
        ):
            told = legacy[scope]
            in_report = (
                told["true_positives"],
                told["false_positives"],
                told["true_negatives"],
                told["false_negatives"],
            )
            expected = card(mine, is_tutor=is_tutor)
            assert in_report == expected
            assert counted(written["scorecards"][theirs]) == expected
        labelled = sum(each["is_harmful"] is not None for each in mine)
        assert written["total_prompts"] == len(mine)
        assert written["coverage"]["labeled_generation_count"] == 2 * labelled
        assert written["coverage"]["labeled_generation_rate"] == labelled / len(mine)
        again = take_over(folder, tmp_path / f"again-{number}")
        assert again["pipeline"]["arms"][0]["legacy"] == arms[name]["legacy"]
        out = tmp_path / f"twice-{number}"
        export(tmp_path / f"again-{number}", "minorbench", out=out)
        for file in ("summary.json", "meta.json"):
            assert read(out / name / file) == read(folder / file)
        assert (out / name / "results.jsonl").read_text() == (folder / "results.jsonl").read_text()


def test_what_a_folder_says_beside_its_figures_survives(tmp_path: Path) -> None:
    """Provider, prompt, dates, pack, tokens, costs and times, byte by meaning."""
    take_over(lay(tmp_path / "theirs", "with tokens"), tmp_path / "ours")
    export(tmp_path / "ours", "minorbench", out=tmp_path / "back")
    folder = tmp_path / "back" / "org-guard"
    meta = read(folder / "meta.json")
    assert {name: meta[name] for name in META} == META
    manifest = read(folder / "data_manifest.json")
    assert {name: manifest[name] for name in PACK} == PACK
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    for before, after in zip(KINDS["with tokens"], map(json.loads, lines), strict=True):
        for field in ("system_prompt", "guardrail_model", "guardrail_provider", "dataset_source"):
            assert after[field] == before[field]
        assert after["metadata"]["base_prompt_id"] == before["metadata"]["base_prompt_id"]
        for one, other in zip(before["generations"], after["generations"], strict=True):
            for field, value in one["raw"].items():
                assert other["raw"][field] == value
    costs = read(folder / "summary.json")["costs"]
    answered = sum(
        each["generations"][0]["raw"]["finish_reason"] == "stop" for each in KINDS["with tokens"]
    )
    assert costs["tutor_cost_usd"] == 2 * answered * 0.5
    assert costs["judge_tokens"] == 2 * answered * 12
    assert costs["guardrail_tokens"] == 2 * 12 * 12


def test_answers_of_rules_stay_answers_of_rules(tmp_path: Path) -> None:
    """A folder without a judge gets none on the way."""
    take_over(lay(tmp_path / "theirs", "old"), tmp_path / "ours")
    export(tmp_path / "ours", "minorbench", out=tmp_path / "back")
    assert read(tmp_path / "back" / "none" / "summary.json")["safety_source"] == "rules"
    (line, *_) = (tmp_path / "back" / "none" / "results.jsonl").read_text().splitlines()
    assert "judge_labels" not in json.loads(line)


def test_a_folder_that_was_not_imported_is_led_to_the_import(tmp_path: Path) -> None:
    """By the command that takes it over, however old its layout is; every verb opens runs so."""
    folder = lay(tmp_path / "theirs", "old")
    with pytest.raises(StoreError, match=f"guardmark import minorbench {folder}"):
        find_run(folder)
