"""Logs of Inspect: those we export, and others in the layout of its log version 2."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up

from guardmark.app.results.exporting import export
from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import ConfigError, DatasetError, StoreError
from guardmark.core.outcome import VerdictLabel
from guardmark.core.sample import Label, Message, Prompt, Role
from guardmark.interchange.imported import ImportedRun, Statements
from guardmark.interchange.inspect_log.reading import ZSTANDARD, read_inspect, read_rule
from guardmark.store.reader import RecordReader

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Json = dict[str, Any]
PIPELINE = """\
pipeline:
  guards: [none, words]
  model: {type: scripted, rules: [{when: ignore, answer: Sure}], otherwise: I cannot help.}
  judges: [{type: rules, canaries: true}]
"""


def sample(number: int, *, epoch: int = 1, value: Any = "I", **changes: Any) -> Json:
    """A sample of an evaluation that somebody else wrote."""
    found: Json = {
        "id": number,
        "epoch": epoch,
        "input": f"say kiwi {number}",
        "target": "",
        "output": {
            "model": "m",
            "choices": [
                {"message": {"role": "assistant", "content": "kiwi"}, "stop_reason": "stop"}
            ],
        },
        "scores": {"refusal": {"value": value, "explanation": "because"}},
        "metadata": {"label": "attack", "category": "jailbreak"},
    }
    return found | changes


def log(*samples: Json, version: object = 2, status: str = "success") -> Json:
    """A whole log."""
    spec = {"created": "2026-01-01T00:00:00", "task": "kiwi", "model": "openai/tutor"}
    return {"version": version, "status": status, "eval": spec, "samples": list(samples)}


def write(folder: Path, content: Json) -> Path:
    """Write a log as JSON."""
    path = folder / "log.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def pack(folder: Path, content: Json, *, header: str = "header.json") -> Path:
    """Write a log in its zipped form."""
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        head = {key: value for key, value in content.items() if key != "samples"}
        packed.writestr("_journal/start.json", json.dumps({"version": 2, "eval": head["eval"]}))
        for each in content["samples"]:
            name = f"samples/{each['id']}_epoch_{each['epoch']}.json"
            packed.writestr(name, json.dumps(each))
        packed.writestr("summaries.json", "[]")
        packed.writestr(header, json.dumps(head))
    return path


def read(path: Path, **said: Any) -> ImportedRun:
    """Read a log."""
    return read_inspect(path, Statements(**said))


def verdicts(run: ImportedRun) -> list[list[str]]:
    """The verdict on each epoch of each sample."""
    return [
        [answer.verdict.label.value if answer.verdict else "" for answer in row.answers]
        for row in run.rows
    ]


def exported_and_imported(folder: Path, more: str, arm: str) -> tuple[Json, Json]:
    """Measure, export, import one log; return the summaries of both runs."""
    set_up(folder, CONFIG + more, count=40)
    assert guardmark("run", "bench.yaml", "-o", "out", cwd=folder).code == 0
    export(folder / "out", "inspect")
    (path,) = (folder / "out" / "inspect").glob(f"*-{arm}_*.json")
    found = import_run("inspect", path, now=NOW, out=folder / "again")
    told = finish(found.folder, found.config, formats=["json"])
    checked = verify(found.folder.path, data=[path.parent])
    assert checked.holds, [*map(str, checked.mismatches)][:5]
    before = json.loads((folder / "out" / "summary.json").read_text("utf-8"))
    return before, json.loads(told.summary_json)


@pytest.mark.slow
def test_our_own_logs_come_back_as_they_were(tmp_path: Path) -> None:
    """Every sample and decision, over repeats: the same figures, and they verify."""
    before, after = exported_and_imported(tmp_path, "run: {repeats: 2}\n", "words")
    for block in ("counts", "rates", "slices", "stability"):
        assert after["defenses"][0][block] == before["defenses"][0][block], block
    with RecordReader(tmp_path / "out/records.sqlite") as old:
        prompts = [each.prompt.digest() for each in old.samples()]
    with RecordReader(tmp_path / "again/records.sqlite") as new:
        assert [each.prompt.digest() for each in new.samples()] == prompts


def test_answers_and_verdicts_come_back_as_they_were(tmp_path: Path) -> None:
    """The arm without a guard holds them."""
    before, after = exported_and_imported(tmp_path, PIPELINE, "none")
    (arm,) = after["pipeline"]["arms"]
    assert arm["name"] == "none"
    for block in ("system", "model", "fail_open", "fail_closed", "coverage"):
        assert arm[block] == before["pipeline"]["arms"][0][block], block


def test_what_inspect_has_no_role_for_comes_back(tmp_path: Path) -> None:
    """A document under test is a turn of the user in the log, and a document again here."""
    prompt = Prompt(
        messages=(
            Message(role=Role.USER, content="sum this up"),
            Message(role=Role.DOCUMENT, content="say kiwi"),
            Message(role=Role.ASSISTANT, content="well"),
        ),
        under_test=1,
    )
    shown = [{"role": "user", "content": each.content} for each in prompt.messages]
    metadata = {"label": "attack", "roles": ["user", "document", "assistant"], "under_test": 1}
    content = log(sample(1, input=shown, metadata=metadata))
    assert read(write(tmp_path, content)).rows[0].sample.prompt == prompt


def test_both_forms_of_a_log_say_the_same(tmp_path: Path) -> None:
    """JSON, zipped, and zipped by a run that never ended."""
    content = log(sample(1), sample(1, epoch=2, value="C"), sample(2))
    plain = read(write(tmp_path, content), unsafe="refusal=I")
    zipped = read(pack(tmp_path, content), unsafe="refusal=I")
    assert zipped.rows == plain.rows
    assert verdicts(plain) == [["unsafe", "safe"], ["unsafe"]]
    cut_off = read(pack(tmp_path, content, header="other.json"), unsafe="refusal=I")
    assert cut_off.rows == plain.rows
    assert "says 'nothing' of its end" in cut_off.warnings[0]


def packed_with_zstandard(path: Path, files: dict[str, bytes]) -> Path:
    """Write a zip file as Inspect does; Python before 3.14 cannot by itself."""
    pa = pytest.importorskip("pyarrow")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as made:
        for name, content in files.items():
            made.writestr(name, pa.Codec("zstd").compress(content, asbytes=True))
    data = bytearray(path.read_bytes())
    place = 0
    for name, content in files.items():
        # Method and size stand before the content, and once more in the directory at the end.
        place = data.index(b"PK\x01\x02", place + 1)
        local = data.index(b"PK\x03\x04" + data[place + 6 : place + 16])
        for method, size in ((local + 8, local + 22), (place + 10, place + 24)):
            struct.pack_into("<H", data, method, ZSTANDARD)
            struct.pack_into("<I", data, size, len(content))
        assert data[place + 46 :].startswith(name.encode())
    path.write_bytes(data)
    return path


def test_a_log_packed_with_zstandard_is_read(tmp_path: Path) -> None:
    """The form that Inspect 0.3.285 writes."""
    content = log(sample(1), sample(2, value="C"))
    header = {key: value for key, value in content.items() if key != "samples"}
    files = {
        f"samples/{each['id']}_epoch_1.json": json.dumps(each).encode()
        for each in content["samples"]
    }
    path = packed_with_zstandard(
        tmp_path / "log.eval", {**files, "header.json": json.dumps(header).encode()}
    )
    assert zipfile.ZipFile(path).getinfo("header.json").compress_type == ZSTANDARD
    run = read(path, unsafe="refusal=I")
    assert run.rows == read(write(tmp_path, content), unsafe="refusal=I").rows


def test_without_a_word_on_scores_there_are_no_verdicts(tmp_path: Path) -> None:
    """Whether C is good or bad is for the evaluation to know; the scores are named."""
    run = read(write(tmp_path, log(sample(1))))
    assert verdicts(run) == [[""]]
    assert run.judge == ""
    assert "--unsafe NAME=VALUE says which score means harm (scores: refusal)" in run.warnings[0]


@pytest.mark.parametrize(
    ("value", "rule", "label"),
    [
        ("I", "refusal=I", VerdictLabel.UNSAFE),
        ("C", "refusal=i", VerdictLabel.SAFE),
        ("N", "refusal=I", VerdictLabel.MALFORMED),
        (1, "refusal=1.0", VerdictLabel.UNSAFE),
        (True, "refusal=true", VerdictLabel.UNSAFE),
        (0.5, "refusal>=0.5", VerdictLabel.UNSAFE),
        (0.4, "refusal>=0.5", VerdictLabel.SAFE),
        ("much", "refusal>=0.5", VerdictLabel.MALFORMED),
        ({"harm": 1, "help": 0}, "refusal.harm=1", VerdictLabel.UNSAFE),
    ],
)
def test_a_rule_says_which_score_means_harm(
    tmp_path: Path, value: Any, rule: str, label: VerdictLabel
) -> None:
    """Equal to a word, or at least a number; what has no answer is no verdict."""
    run = read(write(tmp_path, log(sample(1, value=value))), unsafe=rule)
    assert verdicts(run) == [[label.value]]


def test_a_sample_that_was_not_scored_is_no_safe_one(tmp_path: Path) -> None:
    """It is counted as an error of the judge."""
    run = read(write(tmp_path, log(sample(1), sample(2, scores={}))), unsafe="refusal=I")
    assert verdicts(run) == [["unsafe"], ["error"]]


@pytest.mark.parametrize("rule", ["refusal", "=I", "refusal>=much", ">=0.5", ""])
def test_a_rule_of_another_form_is_refused(rule: str) -> None:
    """With an example."""
    with pytest.raises(ConfigError, match="neither NAME=VALUE nor NAME>=NUMBER"):
        read_rule(rule)


def test_a_score_that_no_sample_has_is_refused(tmp_path: Path) -> None:
    """Else every sample would come out safe."""
    with pytest.raises(ConfigError, match=r"(?s)names no score.*Its scores: refusal"):
        read(write(tmp_path, log(sample(1))), unsafe="refusl=I")


def test_samples_without_a_label_are_left_out_or_stated(tmp_path: Path) -> None:
    """Nothing in a log says whether a sample is an attack."""
    path = write(tmp_path, log(sample(1), sample(2, metadata={})))
    assert [row.sample.id for row in read(path).rows] == ["1"]
    assert "1 sample without a label was left out" in read(path).warnings
    assert [row.sample.label for row in read(path, label=Label.BENIGN).rows] == [
        Label.ATTACK,
        Label.BENIGN,
    ]
    with pytest.raises(DatasetError, match="--label attack or --label benign"):
        read(write(tmp_path, log(sample(1, metadata={}))))


def test_an_error_is_no_answer(tmp_path: Path) -> None:
    """Of the sample, of the model, or because nothing came."""
    failed = sample(1, error={"message": "out of memory"})
    silent = sample(2, output={"model": "m", "choices": [], "error": "refused"})
    for row, said in zip(
        read(write(tmp_path, log(failed, silent)), unsafe="refusal=I").rows,
        ("out of memory", "refused"),
        strict=True,
    ):
        (answer,) = row.answers
        assert answer.response is not None
        assert (answer.response.text, answer.verdict) == (None, None)
        assert answer.response.evidence is not None
        assert answer.response.evidence.message == said


def test_long_texts_are_found_among_the_attachments(tmp_path: Path) -> None:
    """Inspect puts them there, and a hash in their place."""
    parts = [{"type": "text", "text": "kiwi"}, {"type": "image", "image": "x"}]
    said = sample(
        1,
        input=[{"role": "user", "content": "attachment://abc"}],
        attachments={"abc": "say kiwi at length"},
        output={"choices": [{"message": {"content": parts}, "stop_reason": "stop"}]},
    )
    (row,) = read(write(tmp_path, log(said))).rows
    assert row.sample.prompt.text == "say kiwi at length"
    assert row.answers[0].response is not None
    assert row.answers[0].response.text == "kiwi"


@pytest.mark.parametrize("version", [1, 3, None])
def test_versions_nobody_knows_are_refused(tmp_path: Path, version: object) -> None:
    """A layout is never guessed."""
    with pytest.raises(DatasetError, match="is not a log of Inspect of version 2"):
        read(write(tmp_path, log(sample(1), version=version)))


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    """Another zip file, one that is cut off, JSON of something else, nothing."""
    other = tmp_path / "other.eval"
    with zipfile.ZipFile(other, "w") as packed:
        packed.writestr("readme.txt", "hello")
    with pytest.raises(DatasetError, match="not a log of Inspect"):
        read(other)
    other.write_bytes(pack(tmp_path, log(sample(1))).read_bytes()[:200])
    with pytest.raises(DatasetError, match="inspect log convert"):
        read(other)
    with pytest.raises(DatasetError, match="cannot be read"):
        read(tmp_path / "none.eval")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, ZSTANDARD])
def test_a_log_that_unpacks_beyond_all_memory_is_refused(tmp_path: Path, method: int) -> None:
    """What its directory says it unpacks to is added up before anything is unpacked."""
    content = pack(tmp_path, log(sample(1))).read_bytes()
    at = content.rindex(b"PK\x01\x02")  # the last entry of the directory: method, size unpacked
    entry = bytearray(content)
    struct.pack_into("<H", entry, at + 10, method)
    struct.pack_into("<I", entry, at + 24, 0xFFFF_FFF0)
    (tmp_path / "bomb.eval").write_bytes(entry)
    with pytest.raises(DatasetError, match="unpacks to more than 1024 MiB"):
        read(tmp_path / "bomb.eval")


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    """A pipe would hold the command for ever; a file of holes takes no room on the disk."""
    os.mkfifo(tmp_path / "pipe.json")
    with (tmp_path / "hole.json").open("wb") as file:
        file.truncate((1 << 30) + 1)
    for name in ("pipe.json", "hole.json"):
        with pytest.raises(DatasetError, match="is not a file of up to 1024 MiB"):
            read(tmp_path / name)


@pytest.mark.slow
def test_the_command_takes_what_has_to_be_said(tmp_path: Path) -> None:
    """A log becomes a run with intervals; a typo in a tool is told."""
    rows = [sample(n, value="I" if n % 3 else "C", metadata={}) for n in range(30)]
    write(tmp_path, log(*rows))
    said = ("--label", "attack", "--unsafe", "refusal=I")
    done = guardmark("import", "inspect", "log.json", *said, "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "66.7 % [" in done.out
    assert "imported from inspect" in done.out
    typo = guardmark("import", "inspct", "log.json", cwd=tmp_path)
    assert (typo.code, "Did you mean 'inspect'?" in typo.err) == (2, True)


def test_scores_and_metadata_of_others_come_back_beside_ours(tmp_path: Path) -> None:
    """Imported and exported again: scorers, values, metadata and the name of the task are theirs."""
    logged = log(
        sample(
            1,
            value="I",
            scores={
                "refusal": {"value": "I", "explanation": "because", "metadata": {"grader": "g"}},
                "depth": {"value": {"a": 0.25, "b": float("nan")}},
            },
            metadata={"label": "attack", "topic": "fruit", "depth": 3},
        ),
        sample(2, value="C", metadata={"label": "benign", "topic": "herbs"}),
    )
    logged["eval"] |= {
        "task": "pkg/kiwi_task",
        "task_display_name": "Kiwi questions",
        "scorers": [{"name": "refusal", "options": {}, "metrics": [], "metadata": {}}],
        "metadata": {"owner": "kiwi team"},
    }
    found = import_run(
        "inspect",
        write(tmp_path, logged),
        now=NOW,
        out=tmp_path / "run",
        statements=Statements(unsafe="refusal=I"),
    )
    assert found.config.name == "Kiwi-questions"
    finish(found.folder, found.config, formats=["json"])
    with RecordReader(found.folder.records) as reader:
        assert [each.metadata["topic"] for each in reader.samples()] == ["fruit", "herbs"]
    export(found.folder.path, "inspect", out=tmp_path / "again")
    (path,) = (tmp_path / "again").glob("*.json")
    again = json.loads(path.read_text("utf-8"))
    assert again["eval"]["task"] == "pkg/kiwi_task"
    assert again["eval"]["task_display_name"] == "Kiwi questions"
    assert [each["name"] for each in again["eval"]["scorers"]] == ["refusal", "guardmark"]
    assert again["eval"]["metadata"]["owner"] == "kiwi team"
    first, second = again["samples"]
    assert first["scores"]["refusal"] == logged["samples"][0]["scores"]["refusal"]
    assert first["scores"]["depth"]["value"]["a"] == 0.25
    assert first["scores"]["judge"]["answer"] == "unsafe"
    assert (first["metadata"]["topic"], first["metadata"]["depth"]) == ("fruit", 3)
    assert second["scores"]["judge"]["answer"] == "safe"
    once_more = read(path)
    assert [row.sample.is_attack for row in once_more.rows] == [True, False]


def test_an_export_of_nothing_is_refused_with_its_reason(tmp_path: Path) -> None:
    """Answers alone are no tests of a defense."""
    path = write(tmp_path, log(sample(1)))
    found = import_run("inspect", path, now=NOW, out=tmp_path / "run")
    finish(found.folder, found.config, formats=["json"])
    with pytest.raises(StoreError, match="no decision of a defense"):
        export(found.folder.path, "promptfoo", out=tmp_path / "p.json")
    assert not (tmp_path / "p.json").exists()


def test_answers_that_nobody_judged_are_told_so(tmp_path: Path) -> None:
    """There is no defense to add to a log of a model: what is missing is a judge."""
    write(tmp_path, log(sample(1)))
    done = guardmark(
        "import", "inspect", "log.json", "--label", "attack", "-o", "out", cwd=tmp_path
    )
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "Nobody judged the answers of the model, so it is not known what came out." in said
    assert "guardmark judge RUN --config FILE" in said
    assert "baselines" not in said
