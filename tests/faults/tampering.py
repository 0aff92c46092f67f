"""What is done to a finished run, and what `verify` names: one line of `TAMPERING` each."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from guardmark.reports.render.json.encoder import lay_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def sql(statements: str) -> Callable[[Path], None]:
    """Change the tables behind the back of guardmark."""

    def change(run: Path) -> None:
        with closing(sqlite3.connect(run / "records.sqlite")) as connection:
            connection.executescript(statements)
            connection.commit()

    return change


def text(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Replace some words of an artefact, once."""

    def change(run: Path) -> None:
        path = run / name
        said = path.read_text(encoding="utf-8")
        assert old in said
        path.write_text(said.replace(old, new, 1), encoding="utf-8")

    return change


def without_line(name: str, number: int) -> Callable[[Path], None]:
    """Take a line out of a file."""

    def change(run: Path) -> None:
        path = run / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[:number] + lines[number + 1 :]), encoding="utf-8")

    return change


def doubled_line(name: str, number: int) -> Callable[[Path], None]:
    """Say a line of a file twice."""

    def change(run: Path) -> None:
        path = run / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[:number] + lines[number - 1 :]), encoding="utf-8")

    return change


def figure(*keys: str | int, value: object) -> Callable[[Path], None]:
    """Set one figure of summary.json, leaving its form as it was."""

    def change(run: Path) -> None:
        path = run / "summary.json"
        summary = json.loads(path.read_text(encoding="utf-8"))
        place = summary
        for key in keys[:-1]:
            place = place[key]
        assert place[keys[-1]] != value
        place[keys[-1]] = value
        path.write_text(lay_out(summary), encoding="utf-8")

    return change


def data_row(run: Path) -> None:
    """Change a label in the data file, after the run."""
    text("../data.jsonl", '"label": "attack"', '"label": "benign"')(run)


FLIP = "UPDATE records SET outcome = 1 - outcome WHERE sample = 1 AND defense = 0 AND stage = 0"

TAMPERING: dict[str, tuple[Callable[[Path], None], str]] = {
    "a decision turned": (sql(FLIP), "batch"),
    "a record deleted": (sql("DELETE FROM records WHERE sample = 4 AND stage = 0"), "batch"),
    "a record doubled": (
        sql(
            "INSERT INTO records SELECT defense, stage, layer, 1, sample, outcome, score,"
            " score_kind, error_kind, answer_mode, latency_ns, flags, batch, said FROM records"
            " WHERE sample = 4 AND stage = 0 AND defense = 0"
        ),
        "batch",
    ),
    "a score edited": (sql("UPDATE records SET score = 0.99 WHERE score IS NOT NULL"), "batch"),
    "a latency edited": (sql("UPDATE records SET latency_ns = 5 WHERE sample = 9"), "batch"),
    "a label edited": (sql("UPDATE kinds SET is_attack = 1 - is_attack"), "label"),
    "a sample's text edited": (sql("UPDATE samples SET text = 'x' WHERE position = 2"), "s-2"),
    "a batch dropped": (
        sql(
            "DELETE FROM records WHERE batch = (SELECT max(id) FROM batches);"
            "DELETE FROM batches WHERE id = (SELECT max(id) FROM batches)"
        ),
        "ended with batch",
    ),
    "the manifest edited": (
        sql("UPDATE meta SET value = replace(value, 'journey', 'another') WHERE key='manifest'"),
        "manifest",
    ),
    "a count edited in summary.json": (
        figure("defenses", 0, "counts", "attacks", "block", value=3),
        "summary.json: defenses[words].counts.attacks.block",
    ),
    "an interval edited in summary.json": (
        figure("defenses", 1, "rates", "false_positive_rate", "high", value=0.011),
        "summary.json: defenses[mine].rates.false_positive_rate.high",
    ),
    "a bootstrap interval edited in summary.json": (
        figure("defenses", 1, "rates", "ratios", "f1", "low", value=0.99),
        "summary.json: defenses[mine].rates.ratios.f1.low",
    ),
    "a p-value edited in summary.json": (
        figure("comparison", "pairs", 0, "attack_success_rate", "adjusted_p", value=0.0001),
        "adjusted_p",
    ),
    "a latency edited in summary.json": (
        figure("timing", "defenses", "mine", "attacks", "quantiles_ms", 0, "value", value=0.0),
        "timing.defenses.mine.attacks.quantiles_ms[0].value",
    ),
    "a figure added to summary.json": (figure("run", "stored", value=70_000), "run.stored"),
    "summary.json cut off": (without_line("summary.json", -1), "summary.json"),
    "a cell edited in categories.csv": (
        text("categories.csv", '"words","category","', '"words","category","x'),
        "categories.csv: line 2",
    ),
    "a row taken out of categories.csv": (without_line("categories.csv", 3), "categories.csv"),
    "a row taken out of variant_metrics.csv": (
        without_line("variant_metrics.csv", 1),
        "variant_metrics.csv",
    ),
    "a line edited in results.jsonl": (
        text("results.jsonl", '"outcome":"block"', '"outcome":"allow"'),
        "results.jsonl: line",
    ),
    "a line taken out of results.jsonl": (without_line("results.jsonl", 30), "results.jsonl"),
    "a line doubled in results.jsonl": (doubled_line("results.jsonl", 30), "results.jsonl"),
    "a hash edited in data_manifest.json": (
        text("data_manifest.json", '"sha256": "', '"sha256": "0'),
        "data_manifest.json",
    ),
    "a setting edited in config.resolved.yaml": (
        text("config.resolved.yaml", "ignore", "forget"),
        "config.resolved.yaml: defenses.words.patterns[0]",
    ),
    "the verdict edited in summary.md": (
        text("summary.md", "33.3 %", "30.3 %"),
        "summary.md: line",
    ),
    "the verdict edited in report.html": (
        text("report.html", "33.3 %", "30.3 %"),
        "report.html: line",
    ),
    "an advice added to report.html": (
        text("report.html", "</main>", "<p>Certified safe.</p></main>"),
        "report.html",
    ),
    "the data file edited": (data_row, "data.jsonl: sha256"),
}
