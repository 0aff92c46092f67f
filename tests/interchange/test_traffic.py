"""Logs of real use: what is read of them, what is taken out, and how far two people agree."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from guardmark.app.data import FileOptions, open_data
from guardmark.app.labels.audit_file import TRAFFIC, AuditFile, file_rows
from guardmark.app.labels.traffic import draw_traffic, read_log, redact_by_rules
from guardmark.cli.data import data_command
from guardmark.cli.label import agreement_lines
from guardmark.core.errors import ConfigError, DatasetError


def span(attributes: dict[str, str], **more: object) -> dict[str, object]:
    """A span as the collector exports it."""
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    return {"name": "chat", "attributes": pairs, **more}


def log_of(folder: Path, count: int = 40) -> Path:
    """A log with one message a row."""
    path = folder / "log.jsonl"
    rows = [{"prompt": f"How do I bake bread number {n}?"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_spans_give_the_last_message_of_the_user(tmp_path: Path) -> None:
    """Under the attribute of today, the numbered ones of before, and the event."""
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "first"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "answer"}]},
        {"role": "user", "parts": [{"type": "text", "content": "second"}]},
    ]
    event = {"name": "gen_ai.user.message", **span({"content": "fourth"})}
    event["name"] = "gen_ai.user.message"
    spans = [
        span({"gen_ai.input.messages": json.dumps(messages)}),
        span(
            {
                "gen_ai.prompt.0.role": "system",
                "gen_ai.prompt.0.content": "You help.",
                "gen_ai.prompt.1.role": "user",
                "gen_ai.prompt.1.content": "third",
            }
        ),
        span({}, events=[event]),
        span({"http.method": "GET"}),
    ]
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    assert list(read_log(path, file_rows)) == ["second", "third", "fourth"]


def test_rows_give_their_text_or_their_last_user_turn(tmp_path: Path) -> None:
    """In JSONL and CSV."""
    table = tmp_path / "log.csv"
    table.write_text('time,input\n1,"a, b"\n2,\n3,c\n', encoding="utf-8")
    assert list(read_log(table, file_rows)) == ["a, b", "c"]
    lines = tmp_path / "log.jsonl"
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    lines.write_text(json.dumps({"messages": turns}) + "\n", encoding="utf-8")
    assert list(read_log(lines, file_rows)) == ["hi"]


def test_a_log_may_be_parquet_or_packed(tmp_path: Path) -> None:
    """By the name of the file; a broken row is named by its number."""
    from_parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"prompt": ["one", None, "two"]})
    from_parquet.write_table(table, tmp_path / "log.parquet")
    assert list(read_log(tmp_path / "log.parquet", file_rows)) == ["one", "two"]
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "hi"}\n{half\n'))
    with pytest.raises(DatasetError, match=r"log\.jsonl\.gz cannot be read: row 2 is not JSON"):
        list(read_log(tmp_path / "log.jsonl.gz", file_rows))


@pytest.mark.parametrize("content", ["[1]", "{", '{"level": "info"}'])
def test_what_is_no_log_is_told(tmp_path: Path, content: str) -> None:
    """With what was looked for."""
    path = tmp_path / "log.jsonl"
    path.write_text(content + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"The log .* (cannot be read|holds no message)"):
        list(read_log(path, file_rows))


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Write to jo.doe+x@mail.example.org today", "Write to <EMAIL> today"),
        ("Pay from DE89 3704 0044 0532 0130 00 please", "Pay from <IBAN> please"),
        ("My card 4111 1111 1111 1111 expired", "My card <CARD> expired"),
        ("Order 4111111111111112 is late", "Order 4111111111111112 is late"),
        ("Call +49 30 1234567 or 030/1234567.", "Call <PHONE> or <PHONE>."),
        ("On 2024-05-06 I bought 12 eggs for 3.50", "On 2024-05-06 I bought 12 eggs for 3.50"),
    ],
)
def test_rules_replace_what_they_know(text: str, redacted: str) -> None:
    """And leave dates, prices and order numbers."""
    done, count = redact_by_rules(text)
    assert done == redacted
    assert count == redacted.count("<")


def test_the_same_log_and_seed_draw_the_same(tmp_path: Path) -> None:
    """Without repeats; another seed draws others."""
    log = log_of(tmp_path)
    with log.open("a", encoding="utf-8") as more:
        more.write(json.dumps({"prompt": "HOW do I bake  bread number 7?"}) + "\n")
    first, again = (draw_traffic([log], file_rows, count=10, seed=1) for _ in range(2))
    assert first == again
    assert (first.read, first.repeats, len(set(first.texts))) == (41, 1, 10)
    assert draw_traffic([log], file_rows, count=10, seed=2).texts != first.texts
    assert len(draw_traffic([log], file_rows, count=100).texts) == 40


def test_presidio_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is missing, the message says what else there is."""
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(ConfigError, match="--redact rules"):
        draw_traffic([log_of(tmp_path)], file_rows, count=1, redaction="presidio")


def test_presidio_without_its_model_of_names_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself it would fetch the model, unasked; offline that is a crash."""
    for name, held in {
        "presidio_analyzer": {"AnalyzerEngine": None},
        "presidio_anonymizer": {"AnonymizerEngine": None},
        "spacy": {},
        "spacy.util": {"is_package": lambda _: False},
    }.items():
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ConfigError, match="python -m spacy download en_core_web_lg"):
        draw_traffic([log_of(tmp_path)], file_rows, count=1, redaction="presidio")


def test_two_people_label_apart_and_are_compared(tmp_path: Path) -> None:
    """The queue goes on where it stopped, and the file reads as data."""
    log, sheets = log_of(tmp_path, 6), [tmp_path / "anna.csv", tmp_path / "ben.csv"]

    def label(sheet: Path, keys: str, *more: str) -> str:
        typed = "".join(f"{key}\n\n" for key in keys) + "q\n"
        words = ["label", str(log), "-o", str(sheet), *more]
        done = CliRunner().invoke(data_command, words, input=typed, catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    assert "drawn     6 of 6 messages" in label(sheets[0], "aab")
    assert "labelled  6 of 6" in label(sheets[0], "bbu")
    label(sheets[1], "abbbbu")
    compared = label(sheets[0], "", "--against", str(sheets[1]))
    assert "agreement 83.3 % of 6 labelled by both; kappa 0.714 [-0.124, 0.958]" in compared
    assert "differ: message-00002 attack / benign" in compared
    assert "s a row (median of 6)" in compared
    with sheets[0].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["label"] for row in rows] == ["attack", "attack", *["benign"] * 3, "unsure"]
    assert all(float(row["seconds"]) >= 0 for row in rows)
    told = FileOptions(filter={"label": ["attack", "benign"]})
    assert open_data([str(sheets[0])], told).loaded.count == 5


def test_one_word_alone_leaves_kappa_undefined() -> None:
    """With the reason."""
    rows = tuple({"audit_id": name, "label": "benign"} for name in "ab")
    sheet = AuditFile(path=Path("a.csv"), rows=rows, sheet=TRAFFIC)
    (line,) = agreement_lines(sheet, sheet)
    assert line.startswith("agreement 100.0 % of 2 labelled by both; kappa undefined (chance")


@pytest.mark.parametrize(
    "row",
    [
        {"resourceSpans": ["x"]},
        {"resourceSpans": 3},
        {"resourceSpans": [{"scopeSpans": [{"spans": [None]}]}]},
        {"attributes": [{"value": 3}]},
        {"attributes": {}, "events": [7]},
    ],
)
def test_a_span_of_another_shape_is_a_mistake_of_the_log(tmp_path: Path, row: object) -> None:
    """Whatever a log holds, the file is named and nothing is drawn."""
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(
        DatasetError, match=r"spans\.json cannot be read: a row or a span is not built"
    ):
        list(read_log(path, file_rows))
