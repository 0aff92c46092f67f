"""What a stranger writes into the JSON of a run's records is refused in plain words, or is read.

One line of `EDITS` each: where it is, and how it is changed. To add a case, add a line.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.faults.strangers import MODULE, PRIVATE, VARIABLE
from tests.faults.watched import Watcher
from tests.golden.runs import FROZEN

from guardmark.core.errors import StoreError
from guardmark.store import integrity
from guardmark.store.codec import stored_object
from guardmark.store.reader import RecordReader
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LIMIT_S: Final = 60.0  # a hang, on a machine that others use
ODD: Final = (None, [], {}, 1, -1, 1 << 60, 0.5, "x", True, [[]], {"a": 1})
"""What stands in place of a value."""
WHOLE: Final = ("[]", "null", "1", '"x"', "{", "[" * 5_000, '{"kind": ' + "9" * 5_000 + "}")
"""What stands in place of a whole object, and is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of one JSON value: the new whole of it, or what becomes of some keys."""

    run: str = "adaptive"
    table: str = "layers"
    column: str = "settings"
    where: str = "name = 'adaptive'"
    whole: str = ""
    path: tuple[str | int, ...] = ()
    value: object = "DROPPED"

    def carry_out(self, run: Path) -> None:
        """Change the first row it is about."""
        with closing(sqlite3.connect(run / "records.sqlite", isolation_level=None)) as records:
            find = f"SELECT {self.column} FROM {self.table} WHERE {self.where} LIMIT 1"  # noqa: S608 - words of this file
            (before,) = records.execute(find).fetchone()
            after = self.whole or _changed(before, self.path, self.value)
            change = f"UPDATE {self.table} SET {self.column} = ? WHERE {self.where}"  # noqa: S608 - words of this file
            records.execute(f"{change} AND {self.column} = ?", [after, before])


def _changed(text: str, path: tuple[str | int, ...], value: object) -> str:
    """Return a JSON text with one value replaced, or dropped."""
    document: Any = json.loads(text)
    place = document
    for key in path[:-1]:
        place = place[key]
    if value == "DROPPED":
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(document)


_FOUND: Final = "name = 'adaptive/findings/scored'"
_ASKED: Final = "layer IN (SELECT id FROM layers WHERE name = 'adaptive/{}')"
EDITS: Final = {
    "no object": Edit(whole="[]"),
    "ten thousand brackets": Edit(whole="[" * 5_000 + "]" * 5_000),
    "a billion seeds": Edit(path=("seeds",), value=1 << 30),
    "seeds that are a word": Edit(path=("seeds",), value="two"),
    "a budget that is a word": Edit(path=("budget",), value="x\n::error::"),
    "an attacker that is a list": Edit(path=("attacker",), value=[1]),
    "calls of an attacker that are a word": Edit(path=("attacker", "max_calls"), value="many"),
    "labels that are words": Edit(where=_FOUND, path=("labels", "keyword"), value="many"),
    "more labels than attacks": Edit(where=_FOUND, path=("labels", "keyword"), value=1 << 30),
    "no number examined": Edit(where=_FOUND, path=("examined",), value=None),
    "more signs than looked at": Edit(where=_FOUND, path=("signs", "case", 0), value=1 << 30),
    "a sign that is a word": Edit(where=_FOUND, path=("signs", "case"), value="yes"),
    "flags that are numbers": Edit(where=_FOUND, path=("flags",), value=[1, None]),
    "a target that is a word": Edit(where="name = 'adaptive/target'", path=("model",), value="x"),
    "judges that are numbers": Edit(where="name = 'adaptive/target'", path=("judges",), value=[1]),
    "a kind of answer that is gone": Edit(
        table="tries", column="details", where=_ASKED.format("attacker"), path=("kind",)
    ),
    "a depth that is gone": Edit(
        table="tries", column="details", where=_ASKED.format("attacker"), path=("depth",)
    ),
    "a candidate that is a list": Edit(
        table="tries",
        column="details",
        where=_ASKED.format("equivalence"),
        path=("candidate",),
        value=[[]],
    ),
    "a fate that is gone": Edit(
        table="tries", column="details", where=_ASKED.format("candidates"), path=("fate",)
    ),
    "a canary that is gone": Edit(
        table="tries", column="details", where=_ASKED.format("canaries"), path=("canary",)
    ),
    "a person who said nothing": Edit(
        table="tries", column="details", where=_ASKED.format("audit-4efde8f5"), whole="{}"
    ),
    "evidence of another form": Edit(
        run="pipeline",
        table="details",
        column="evidence",
        where="evidence IS NOT NULL",
        whole='{"categories": {"a": 1}, "attempts": "xy", "usage": 7}',
    ),
    "usage that is words": Edit(
        run="pipeline",
        table="details",
        column="evidence",
        where="evidence IS NOT NULL",
        whole='{"usage": ["a", "b", "c"]}',
    ),
    "evidence of two lines": Edit(
        run="pipeline",
        table="details",
        column="evidence",
        where="evidence IS NOT NULL",
        whole='{"reason":\n"x"}',
    ),
    "half of a pair": Edit(
        table="details",
        column="evidence",
        where="json_extract(evidence, '$.finish_reason') IS NOT NULL",
        path=("finish_reason",),
        value="\ud800",
    ),
    "data that are words": Edit(
        table="meta",
        column="value",
        where="key = 'manifest'",
        path=("settings", "data", 0),
        value="x",
    ),
    "a price for nothing known": Edit(
        table="meta",
        column="value",
        where="key = 'manifest'",
        path=("settings", "prices"),
        value={"keyword": {"for_nothing": 1}},
    ),
    "a judging without settings": Edit(
        run="pipeline", where="name = 'board'", path=("settings",), value=7
    ),
}
"""Name to what was changed."""
COMMANDS: Final = (
    ("verify", "out"),
    ("export", "out", "--to", "csv,jsonl,minorbench,inspect"),
    ("report", "out", "-f", "json"),
)


PLACES: Final = (
    ("meta", "value", "key = 'manifest'"),
    ("layers", "settings", "settings <> '{}'"),
    ("tries", "details", "details IS NOT NULL"),
    ("tries", "evidence", "evidence IS NOT NULL"),
    ("details", "evidence", "evidence IS NOT NULL"),
)
"""Table, column and rows of JSON that a stranger may have changed anywhere."""
TRAPS: Final[tuple[Any, ...]] = (
    *(None, [], {}, 0, -1, 1 << 31, 1 << 70, 1e308, float("nan"), "", "x\n::error::y", "\x1b[31m"),
    *(True, [[]], {"a": 1}, "os:system", f"{MODULE}:decide", {"env": VARIABLE}, f"../{PRIVATE}"),
    *("http://127.0.0.1:9/x", "python", "http", "command", "chat", "9" * 5_000, "\ud800"),
    {"type": "python", "target": f"{MODULE}:decide"},
    {"type": "http", "url": "http://127.0.0.1:9", "body": {}, "blocked": "$.b"},
    [{"path": f"../{PRIVATE}"}],
)
ALL_COMMANDS: Final = (
    ("verify", "out"),
    ("show", "out", "--bypasses", "--full"),
    ("report", "out", "-f", "html,md,json,csv,junit,sarif"),
    ("compare", "out"),
    ("gate", "out"),
    ("judge", "out", "--quality"),
    ("export", "out", "--to", "jsonl,csv,minorbench,inspect"),
    ("adapt", "out", "--budget", "4", "--canaries", "0"),
    ("adapt", "out", "--budget", "4", "--canaries", "0", "--trust"),
)


def change_anything(run: Path, draw: random.Random) -> str:
    """Change one JSON value somewhere in the records, and say where."""
    with closing(sqlite3.connect(run / "records.sqlite", isolation_level=None)) as records:
        table, column, where = draw.choice(PLACES)
        find = f"SELECT DISTINCT {column} FROM {table} WHERE {where} ORDER BY 1"  # noqa: S608 - words of this file
        (before,) = draw.choice(records.execute(find).fetchall())
        document = json.loads(before)
        path = draw.choice(list(_paths(document)))
        value = draw.choice(("DROPPED", *TRAPS))
        after = _changed(before, path, value)
        change = f"UPDATE {table} SET {column} = ? WHERE {column} = ?"  # noqa: S608 - words of this file
        records.execute(change, [after, before])
    return f"{table}.{column} {path} {value!r:.60}"


def _paths(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where each value below a JSON value is."""
    keys = range(len(value)) if isinstance(value, list) else value
    for key in keys if isinstance(value, dict | list) else ():
        below = value[key]
        yield (*above, key)
        yield from _paths(below, (*above, key))


def forge(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the hash chain anew, as somebody can who changed what it is about."""
    heads, link = list[bytes](), integrity.link

    def from_its_own(before: bytes, content: Sequence[object]) -> bytes:
        heads.append(link(heads[-1] if heads else before, content))
        return heads[-1]

    with monkeypatch.context() as patched, suppress(StoreError):
        patched.setattr(integrity, "link", from_its_own)
        integrity.check(run / "records.sqlite")
    with closing(sqlite3.connect(run / "records.sqlite", isolation_level=None)) as records:
        links = [(head, number) for number, head in enumerate(heads, 1)]
        records.executemany("UPDATE batches SET hash = ? WHERE id = ?", links)
        end = f"{len(heads)}:{heads[-1].hex()}" if heads else ""
        records.execute("UPDATE meta SET value = ? WHERE key = 'head'", [end])


def receive(run: str, folder: Path) -> Path:
    """Lay out the frozen records of a golden run."""
    folder.mkdir(parents=True)
    with gzip.open(FROZEN / run / "run" / "records.sqlite.gz") as packed:
        (folder / "records.sqlite").write_bytes(packed.read())
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two finished runs, an adaptive one among them."""
    home = tmp_path_factory.mktemp("runs")
    return {name: receive(name, home / name) for name in ("adaptive", "pipeline")}


@pytest.fixture(scope="module")
def watcher() -> Iterator[Watcher]:
    """A process that carries out commands."""
    forbidden = [MODULE, VARIABLE, PRIVATE]
    with Watcher(env={VARIABLE: "secret"}, forbidden=forbidden, limit_s=LIMIT_S) as watching:
        yield watching


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_edited_json_is_no_fault_of_guardmark(
    name: str, runs: dict[str, Path], watcher: Watcher, tmp_path: Path
) -> None:
    """Every command ends in time with a figure or a refusal, and none with a traceback."""
    shutil.copytree(runs[EDITS[name].run], tmp_path / "out")
    EDITS[name].carry_out(tmp_path / "out")
    for words in COMMANDS:
        done = watcher.carry_out(words, cwd=tmp_path)
        assert done.code in {0, 1, 2, 3, 5}, (words, done.code, done.err)
        assert not any(line.startswith("::") for line in (done.out + done.err).splitlines())


def check_changes(
    number: int, runs: dict[str, Path], watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change a value, make the chain anew, and give every command on what came of it."""
    home = runs["adaptive"].parent / f"changed-{number}"
    shutil.copytree(runs["adaptive"], home / "out")
    (home / PRIVATE).write_text("a private line", encoding="utf-8")
    change = change_anything(home / "out", random.Random(number))
    forge(home / "out", monkeypatch)
    for words in ALL_COMMANDS:
        done = watcher.carry_out(words, cwd=home)
        printed = done.out + done.err
        assert done.code in {0, 1, 2, 3, 5, 6}, (change, words, done.code, done.err)
        assert done.events == [], (change, words)
        assert not any(line.startswith("::") for line in printed.splitlines()), (change, words)
        assert not {"\x1b", "\0"} & set(printed), (change, words)
        assert "private line" not in printed
        assert "Traceback" not in done.err
    shutil.rmtree(home)


def test_a_forged_chain_holds(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests below change is refused for what it is, and not for a hash that differs."""
    run = shutil.copytree(runs["adaptive"], tmp_path / "out")
    target = {"type": "python", "target": f"{MODULE}:decide"}
    changed = ("settings", "defenses", "keyword")
    Edit(
        table="meta", column="value", where="key = 'manifest'", path=changed, value=target
    ).carry_out(run)
    assert integrity.check(run / "records.sqlite") != []
    forge(run, monkeypatch)
    assert integrity.check(run / "records.sqlite") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_any_value_changed_under_a_forged_chain_does_nothing(
    number: int, runs: dict[str, Path], watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure or a refusal: no fault, no import, no connection, no variable, no private file."""
    check_changes(number, runs, watcher, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(12, 300))
def test_many_values_changed_under_a_forged_chain_do_nothing(
    number: int, runs: dict[str, Path], watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, many more of them."""
    check_changes(number, runs, watcher, monkeypatch)


def test_the_form_of_each_stored_object_is_told(runs: dict[str, Path]) -> None:
    """What guardmark wrote has its form; no object that is none has it."""
    with RecordReader(runs["adaptive"] / "records.sqlite") as reader:
        settings = {layer: reader.layer_settings(layer) for layer in reader.layers()}
        details = {each.layer: each.subject.details for each in read_tries(reader)}
    for column, stored in (("settings", settings), ("details", details)):
        for layer in stored:
            for text in WHOLE:
                with pytest.raises((ValueError, TypeError, RecursionError)):
                    stored_object(text, column, layer)


def test_a_key_that_is_read_has_its_type(runs: dict[str, Path]) -> None:
    """Details of a try are what their layer asks for, whatever stands there in place of them."""
    with RecordReader(runs["adaptive"] / "records.sqlite") as reader:
        tries = {each.layer: each.subject.details for each in read_tries(reader)}
    told = {layer: details for layer, details in tries.items() if details}
    assert len(told) > 7
    for layer, details in told.items():
        refused = 0
        for key, odd in ((key, odd) for key in details for odd in ODD):
            text = json.dumps({**details, key: odd})
            try:
                assert isinstance(stored_object(text, "details", layer), dict)
            except TypeError:
                refused += 1
        assert refused > len(ODD) / 2, layer


def test_the_reader_names_the_file_that_is_damaged(runs: dict[str, Path], tmp_path: Path) -> None:
    """The message says which file, and what to do."""
    run = shutil.copytree(runs["adaptive"], tmp_path / "out")
    Edit(path=("seeds",), value="two").carry_out(run)
    with (
        RecordReader(run / "records.sqlite") as reader,
        pytest.raises(StoreError, match=r"records\.sqlite is damaged.*\n.*restore it"),
    ):
        reader.layer_settings("adaptive")
