"""Rows of the catalogue against copies of the same data that others normalised."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.app.data import get_public
from guardmark.datasets.catalogue.mapping import insert_text

if TYPE_CHECKING:
    from guardmark.datasets.loading import LoadedData

EQUAL = {
    "arena-hard-v01": "arena_hard_v01",
    "deepset-prompt-injections": "deepset_prompt_injections",
    "forbidden-questions": "forbidden_questions",
    "giskard-prompt-injections": "giskard_prompt_injections",
    "hatecheck": "hatecheck",
    "in-the-wild-jailbreaks": "jailbreakllms",
    "mt-bench": "mt_bench",
    "openai-guardrails-demo": "openai_guardrails_demo",
    "poisonedrag-nq": "poisonedrag_nq",
    "prompt-extraction": "prompt_extraction",
    "self-instruct-user": "self_instruct_user",
}
"""Entries whose rows are those of the normalised file, in order."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test."""
    monkeypatch.setenv("GUARDMARK_DATA", str(tmp_path / "cache"))


def opened(name: str, folder: Path) -> LoadedData:
    """Do what `guardmark data get NAME --from FOLDER` does."""
    return get_public(name, {"from": str(folder)}, lambda _: None)


def read(shared: Path, name: str) -> list[dict[str, Any]]:
    """Read a normalised file."""
    (path,) = (shared / "data").glob(f"{name}.jsonl*")
    unpack = gzip.open if path.suffix == ".gz" else Path.open
    with unpack(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def mapped(data: LoadedData) -> list[tuple[object, ...]]:
    """What of our rows must be that of others."""
    return [
        (s.prompt.text, s.is_attack, s.category, s.subcategory, s.group, s.metadata["kind"])
        for s in data.samples()
    ]


def normalised(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """The same of the rows of others."""
    return [
        (r["text"], r["is_attack"], *_topic(r), *(r[field] for field in ("group", "kind")))
        for r in rows
    ]


def _topic(row: dict[str, Any]) -> tuple[str, str]:
    """Category and subcategory; of a benign row without a category the finer one is the topic."""
    if row["is_attack"] or row["category"]:
        return row["category"] or "", row["subcategory"]
    return row["subcategory"], ""


@pytest.mark.parametrize("name", EQUAL)
def test_rows_labels_and_groups_are_those_of_the_normalised_file(
    name: str, shared_dir: Path
) -> None:
    """Compared whole and in order; a failure names no text."""
    source = EQUAL[name]
    ours = mapped(opened(name, shared_dir / "data" / "original" / source))
    theirs = normalised(read(shared_dir, source))
    assert (len(ours), ours == theirs) == (len(theirs), True)


def test_advbench_has_the_rows_and_a_group_for_each(shared_dir: Path) -> None:
    """The normalised file numbers every row as a group of its own."""
    ours = mapped(opened("advbench", shared_dir / "data" / "original" / "advbench"))
    theirs = normalised(read(shared_dir, "advbench"))
    assert [row[:4] for row in ours] == [row[:4] for row in theirs]
    assert len({row[4] for row in theirs}) == len(theirs)


SHORTER = {
    "xstest": ("xstest_prompts", "xstest_prompts", 1),
    "xstest-completions": ("xstest_mistralinstruct", "", 3),
    "jailbreakbench-artifacts": ("jbb_artifacts", "jbb_artifacts", 337),
}
"""Entries whose copy is shorter: the normalised file, the folder, and how many rows it lacks."""


@pytest.mark.parametrize("name", SHORTER)
def test_every_row_of_a_shorter_copy_is_one_of_the_normalised_file(
    name: str, shared_dir: Path
) -> None:
    """The copies lack rows that a rule took out, and files of JailbreakBench."""
    source, folder, lacking = SHORTER[name]
    ours = Counter(mapped(opened(name, shared_dir / "data" / "original" / folder)))
    theirs = Counter(normalised(read(shared_dir, source)))
    assert (len(ours - theirs), len(theirs - ours)) == (0, lacking)


def test_latent_jailbreak_has_the_same_answers_in_the_groups_of_both(shared_dir: Path) -> None:
    """The copy is the file of one model; the normalised file has half of the groups."""
    data = opened("latent-jailbreak", shared_dir / "data" / "original" / "latent_jailbreak_a")
    theirs = {
        (r["text"], r["response"], r["human_label"], r["group"])
        for r in read(shared_dir, "latent_jailbreak_a")
        if (r["meta"]["model"], r["meta"]["position"]) == ("ChatGPT", "prefix")
    }
    groups = {row[3] for row in theirs}
    ours = {
        (s.prompt.text, s.metadata["response"], s.metadata["human_label"], s.group)
        for s in data.samples()
        if s.group in groups
    }
    assert (len(ours), len(ours ^ theirs)) == (208, 0)


def test_bipia_has_the_same_attacks_put_into_e_mails_in_the_same_way(shared_dir: Path) -> None:
    """Which attack stands in which e-mail differs; how, and what groups it, does not."""
    folder = shared_dir / "data" / "original" / "bipia_email_test"
    ours = [s for s in opened("bipia-email", folder).samples() if s.is_attack]
    theirs = [r for r in read(shared_dir, "bipia_email_test") if r["is_attack"]]
    assert {(s.group, s.metadata["injected"]) for s in ours} == {
        (r["group"], r["meta"]["injected"]) for r in theirs
    }
    mails = [
        json.loads(line)["context"] for line in (folder / "test.jsonl").read_text().splitlines()
    ]
    built = {
        insert_text(mail, attack, place)
        for mail in mails
        for attack in {r["meta"]["injected"] for r in theirs}
        for place in ("start", "middle", "end")
    }
    same = Counter(r["meta"]["position"] for r in theirs if r["text"] in built)
    assert same == {"start": 85, "middle": 77, "end": 83}
    assert {s.prompt.text for s in ours} <= built
