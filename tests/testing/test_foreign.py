"""The contract of readers catches a reader that breaks one of its laws, and asks for no more."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from guardmark.core.errors import ConfigError, DatasetError
from guardmark.core.outcome import Decision, Outcome
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.interchange import importers
from guardmark.interchange.imported import (
    ImportedAnswer,
    ImportedRun,
    Statements,
    bytes_of,
    decision_of,
    label_of,
    objects_of,
    rows_of,
    why_unlabelled,
    word,
)
from guardmark.parsing.labels import read_truth
from guardmark.testing.contracts import BrokenContract
from guardmark.testing.foreign import ForeignRow, ReaderContract, Reading, ReadRow, reading_of


def read_kiwi(path: Path, statements: Statements) -> ImportedRun:
    """A reader as the author of a plug-in writes it, of JSON lines of a tool called kiwi."""
    warnings: list[str] = []
    data = bytes_of(path, hint="Name a log of kiwi.")
    pairs: list[tuple[Sample | str, ImportedAnswer]] = []
    for number, row in objects_of(data, path, warnings):
        answer = ImportedAnswer(decision=decision_of(read_truth(row.get("hit"))))
        label = label_of(row.get("gold"), statements.label)
        if label is None:
            pairs.append((why_unlabelled(row.get("gold")), answer))
            continue
        if not word(row, "input").strip():
            pairs.append(("without an input", answer))
            continue
        name = row.get("key")
        own = f"line-{number}" if name is None else json.dumps(name)
        prompt = Prompt.of_text(word(row, "input"))
        pairs.append((Sample(id=own, prompt=prompt, label=label, source="kiwi"), answer))
    rows = rows_of(pairs, "line", warnings)
    if not rows:
        raise DatasetError(f"{path} holds no line with a label.")
    return ImportedRun(
        tool="kiwi",
        guard="kiwi",
        rows=rows,
        files={},
        readings=("the decision was read from `hit`: true = blocked",),
        warnings=tuple(warnings),
    )


class KiwiContract(ReaderContract):
    """Its contract."""

    has_rows_by_line = True

    def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
        """Write a log."""
        path = folder / "kiwi.jsonl"
        made = [{"key": r.id, "input": r.text, "gold": r.label, "hit": r.says} for r in rows]
        lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in made)
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def read(self, path: Path, stated: Label | None = None) -> Reading:
        """Read it."""
        return reading_of(read_kiwi(path, Statements(label=stated)))


class TestKiwi(KiwiContract):
    """The reader that the guide shows keeps the contract."""


Broken = Callable[[dict[str, Any], Label | None], tuple[bool, bool | None]]


def reader(decide: Broken, *, strict: bool = True) -> type[ReaderContract]:
    """A contract of a reader that decides label and value of a row by a function."""

    class Contract(KiwiContract):
        says_what_it_took = False

        def read(self, path: Path, stated: Label | None = None) -> Reading:
            text = path.read_bytes().decode("utf-8-sig", "strict" if strict else "replace")
            rows = []
            for number, line in enumerate(text.splitlines()):
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                is_attack, says = decide(row, stated)
                made = ReadRow(id=str(number), text=row["input"], is_attack=is_attack, says=(says,))
                rows.append(made)
            return Reading(rows=tuple(rows))

    return Contract


def sound(row: dict[str, Any], stated: Label | None) -> tuple[bool, bool | None]:
    """What should be read."""
    del stated
    value = row["hit"]
    return row["gold"] == "attack", value if isinstance(value, bool) else None


BROKEN: dict[str, tuple[Broken, str, str]] = {
    "what is unknown is safe": (
        lambda row, stated: (sound(row, stated)[0], bool(row["hit"])),
        "test_what_nobody_decided_is_neither_yes_nor_no",
        "was read as",
    ),
    "a stated label wins": (
        lambda row, stated: (
            sound(row, stated)[0] if stated is None else stated is Label.ATTACK,
            sound(row, stated)[1],
        ),
        "test_a_label_that_is_there_is_never_overridden",
        "with that label",
    ),
    "yes and no are exchanged": (
        lambda row, stated: (sound(row, stated)[0], row["hit"] is False),
        "test_what_is_known_is_read",
        "was read as",
    ),
    "lines that cannot be read are passed over": (
        sound,
        "test_a_file_that_breaks_off_is_refused_or_told",
        "missing without a word",
    ),
    "the second of two members counts": (
        sound,
        "test_doubled_members_are_refused",
        "twice is read otherwise",
    ),
    "nothing is a run": (sound, "test_nothing_is_refused_as_nothing", "read as a run"),
    "it raises what Python raises": (
        sound,
        "test_another_encoding_is_read_or_refused",
        "ends in UnicodeDecodeError",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_reader_that_breaks_a_law_is_caught(name: str) -> None:
    """One broken law each, and the message says which."""
    decide, law, words = BROKEN[name]
    with pytest.raises(BrokenContract, match=words):
        getattr(reader(decide)(), law)()


def test_letters_that_are_replaced_are_caught() -> None:
    """A text that is changed on the way is another text."""
    contract = reader(sound, strict=False)()
    with pytest.raises(BrokenContract, match="is read otherwise, without a word"):
        contract.test_another_encoding_is_read_or_refused()


def test_samples_that_are_merged_are_caught(tmp_path: Path) -> None:
    """The number 1 and the text "1"."""

    class Merged(KiwiContract):
        def read(self, path: Path, stated: Label | None = None) -> Reading:
            del stated
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            by_id = {str(row["key"]): row for row in rows}
            made = (
                ReadRow(
                    id=name,
                    text=row["input"],
                    is_attack=row["gold"] == "attack",
                    says=(row["hit"],),
                )
                for name, row in by_id.items()
            )
            return Reading(rows=tuple(made))

    with pytest.raises(BrokenContract, match="missing without a note"):
        Merged().test_two_samples_stay_two()
    assert not list(tmp_path.iterdir())


def test_a_table_that_turns_polarity_is_caught() -> None:
    """`is_safe` read as `is_attack`."""

    class Turned(ReaderContract):
        columns = {"is_attack": True, "is_safe": False}  # noqa: RUF012 - of this test

        def write(self, folder: Path, rows: Sequence[ForeignRow]) -> Path:
            path, text = folder / "t.csv", StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(["text", self.label_column or "label", "hit"])
            writer.writerows([row.text, row.label, row.says] for row in rows)
            path.write_text(text.getvalue(), "utf-8")
            return path

        def read(self, path: Path, stated: Label | None = None) -> Reading:
            del stated
            lines = path.read_text("utf-8").splitlines()[1:]
            pairs = (line.split(",") for line in lines)
            made = (
                ReadRow(
                    id=text, text=text, is_attack=label in {"True", "attack"}, says=(hit == "True",)
                )
                for text, label, hit in pairs
            )
            return Reading(rows=tuple(made))

    with pytest.raises(BrokenContract, match="labels in is_safe"):
        Turned().test_true_means_what_its_column_says()


def test_another_package_adds_a_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By an entry point; a name that is taken is an error that names both."""
    entry = EntryPoint(name="kiwi", value=f"{__name__}:read_kiwi", group=importers.GROUP)
    found = [entry]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: found)
    importers.known_plugins.cache_clear()
    try:
        path = KiwiContract().write(tmp_path, [ForeignRow(id="a", text="say kiwi")])
        run = importers.read_run("kiwi", path, Statements())
        decision = run.rows[0].answers[0].decision
        assert decision == Decision(outcome=Outcome.BLOCK)
        found.append(EntryPoint(name="garak", value="other:read", group=importers.GROUP))
        importers.known_plugins.cache_clear()
        with pytest.raises(ConfigError, match="Two packages read files of 'garak'"):
            importers.read_run("kiwi", path, Statements())
        found[:] = [EntryPoint(name="gone", value="no_such_module:read", group=importers.GROUP)]
        importers.known_plugins.cache_clear()
        with pytest.raises(ConfigError, match="cannot be loaded from no_such_module:read"):
            importers.read_run("gone", path, Statements())
    finally:
        importers.known_plugins.cache_clear()
