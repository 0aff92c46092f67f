"""The tools whose runs can be read, and how what was read becomes records."""

from __future__ import annotations

import json
import sqlite3
import tomllib
from collections import Counter
from contextlib import closing
from functools import cache
from hashlib import sha256
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, cast

from guardmark.core.errors import ConfigError, DatasetError, StorageError, UnknownName
from guardmark.core.manifest import DataManifest
from guardmark.core.outcome import AnswerMode, ErrorKind, Evidence, Verdict, VerdictLabel
from guardmark.core.record import Stage
from guardmark.core.sample import Label, Sample
from guardmark.interchange import imported
from guardmark.interchange.mapped import read_mapped
from guardmark.parsing.mapped import is_mapped, mapping_names
from guardmark.store.connect import open_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guardmark.store.records import RecordWriter

_TOOLS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "any-guardrail": ("guardmark.interchange.table:read_table", ("label", "model", "confidence")),
    "garak": ("guardmark.interchange.garak:read_garak", ()),
    "guardmark": ("guardmark.interchange.records.reading:read_records", ("model",)),
    "inspect": ("guardmark.interchange.inspect_log.reading:read_inspect", ("label", "unsafe")),
    "minorbench": ("guardmark.interchange.minorbench.reading:read_minorbench", ()),
    "openai-agents": ("guardmark.interchange.traces:read_openai_agents", ("label", "model")),
    "otel": ("guardmark.interchange.traces:read_otel", ("label", "model")),
    "table": ("guardmark.interchange.table:read_table", ("label", "model", "confidence")),
}
"""Tool to its reader, and to what a person may have to say of files that do not say it."""


GROUP: Final = "guardmark.importers"
"""Entry points under which other packages add readers: a name, and `module:function`."""
_STATED: Final = ("label", "model", "unsafe", "confidence")


def builtin_tools() -> tuple[str, ...]:
    """Name the tools that guardmark reads by itself."""
    return (*_TOOLS, *queried_tools(), *mapping_names())


@cache
def known_plugins() -> dict[str, str]:
    """Return the tools that other packages read, and where their readers are loaded from."""
    from importlib.metadata import entry_points

    table: dict[str, str] = {}
    for entry in entry_points(group=GROUP):
        owner = table.get(entry.name)
        if entry.name in builtin_tools():
            owner = "guardmark"
        if owner is not None and owner != entry.value:
            raise ConfigError(
                f"Two packages read files of {entry.name!r}: {owner} and {entry.value}.\n"
                "Uninstall one of them."
            )
        table[entry.name] = entry.value
    return table


def read_run(tool: str, path: Path, statements: imported.Statements) -> imported.ImportedRun:
    """Read a finished run of a tool."""
    if is_mapped(tool):
        _require_needed(tool, statements, ("label", "model"))
        return read_mapped(tool, path, statements)
    rules = _tools().get(tool)
    if rules is not None:
        _require_needed(tool, statements, rules.get("asks", ["model"]))
        return read_queried(tool, path, statements)
    if tool in _TOOLS:
        reader, needed = _TOOLS[tool]
    elif tool in known_plugins():
        reader, needed = known_plugins()[tool], _STATED  # its own reader says what does not apply
    else:
        raise UnknownName("tool", tool, (*builtin_tools(), *known_plugins()))
    _require_needed(tool, statements, needed)
    return _reader(tool, reader)(path, statements)


def _require_needed(tool: str, statements: imported.Statements, needed: Sequence[str]) -> None:
    """Refuse a statement that a reader would pass over."""
    for name in _STATED:
        if getattr(statements, name) and name not in needed:
            raise ConfigError(f"--{name} does not apply to files of {tool}. Leave it out.")


def _reader(tool: str, place: str) -> Callable[[Path, imported.Statements], imported.ImportedRun]:
    """Load the function that reads the files of a tool."""
    try:
        return cast(
            "Callable[[Path, imported.Statements], imported.ImportedRun]", resolve_name(place)
        )
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"The reader of {tool} cannot be loaded from {place}: {error}.\n"
            "Next: repair or uninstall the package that provides it."
        ) from error


def store_rows(
    writer: RecordWriter, rows: Sequence[imported.ImportedRow], *, unguarded: str, has_model: bool
) -> None:
    """Store what came of each sample: decisions of its guard, what followed as `unguarded`."""
    planned = 0
    if has_model:  # known even where the guard let nothing through to it
        writer.record_batch(unguarded, Stage.MODEL, repeat=0)
    for position, row in enumerate(rows):
        for answer in row.answers:
            outcomes = (
                (row.guard, Stage.DEFENSE, answer.decision),
                (unguarded, Stage.MODEL, answer.response),
                (unguarded, Stage.JUDGE, answer.verdict),
            )
            for defense, stage, outcome in outcomes:
                if outcome is not None:
                    batch = writer.record_batch(defense, stage, repeat=answer.repeat)
                    batch.add(position, outcome, latency_ns=None)
                    planned += 1
    writer.plan(planned)


def describe_data(imported: imported.ImportedRun, *, name: str, home: Path) -> DataManifest:
    """Describe the samples of a run as a manifest describes data."""
    labels = Counter(row.sample.label for row in imported.rows)
    digest = sha256()
    for row in imported.rows:
        digest.update(row.sample.id.encode() + row.sample.prompt.digest())
    return DataManifest(
        name=name,
        version="",
        sha256=digest.hexdigest(),
        attacks=labels[Label.ATTACK],
        benign=labels[Label.BENIGN],
        unlabelled=labels[Label.UNLABELLED],
        by_source=Counter(row.sample.source for row in imported.rows),
        by_variant=Counter(row.sample.variant for row in imported.rows),
        files={str(home / file): sealed for file, sealed in imported.files.items()},
    )


_SQLITE: Final = b"SQLite format 3\x00"
_NO_ROW: Final = "SELECT 1 WHERE 0"  # what stands for a query that a tool does not have


@cache
def _tools() -> dict[str, dict[str, Any]]:
    """Return the rules of the tools that are read by a query."""
    return tomllib.loads(Path(__file__).with_name("queries.toml").read_text(encoding="utf-8"))


def queried_tools() -> tuple[str, ...]:
    """Name the tools that are read by a query."""
    return tuple(_tools())


def read_queried(tool: str, path: Path, statements: imported.Statements) -> imported.ImportedRun:
    """Read a finished run of a tool by its query."""
    rules = _tools()[tool]
    warnings: list[str] = []
    noted: list[str] = []
    files: dict[str, str] = {}
    try:
        with closing(_opened(path, rules, files, warnings)) as memory:
            if "ours" in rules and list(memory.execute(rules["ours"]["when"])):
                rules = {**rules, **rules["ours"]}
            for (why,) in memory.execute(rules.get("check", _NO_ROW)):
                raise DatasetError(f"{path} {why}.\n{rules['hint']}")
            rows = list(_objects(memory, rules["rows"]))
            targets = filter(None, [imported.word(row, "target") for row in rows])
            target = imported.one_of(targets, statements.model, rules["target"], path)
            title = ""
            for (text,) in memory.execute(rules.get("title", _NO_ROW)):
                if isinstance(text, str):
                    title = text
            for (note,) in memory.execute(rules.get("notes", _NO_ROW), {"target": target}):
                noted.append(note)
    except (sqlite3.Error, StorageError) as error:
        reason = str(error).splitlines()[0]
        message = f"{path} is not built as {tool} builds it ({reason}).\n{rules['hint']}"
        raise DatasetError(message) from error
    of_target = [row for row in rows if imported.word(row, "target") in {"", target}]
    pairs = []
    for number, row in enumerate(of_target, start=1):
        pairs.append(_pair(row, number, statements, rules))
    taken = imported.rows_of(pairs, rules["noun"], warnings)
    if not taken:
        left_out = "".join(f"{warning}.\n" for warning in warnings[:2])
        raise DatasetError(f"{path} {rules['empty']}.\n{left_out}{rules['hint']}")
    decides = "blocked" in of_target[0]
    judge = ""
    if any(row.is_judged for row in taken):
        judge = rules["judge"]
    return imported.ImportedRun(
        tool=tool,
        guard=target if decides else "",
        model="" if decides else target or rules["target"],
        title=title,
        readings=(rules["takes"],),
        judge=judge,
        created_utc=max(imported.word(row, "created") for row in of_target),
        rows=taken,
        files=files,
        warnings=(*warnings, *noted),
    )


def _opened(
    path: Path, rules: dict[str, Any], files: dict[str, str], warnings: list[str]
) -> sqlite3.Connection:
    """Open what is to be asked: a database itself, or the JSON of files as a table."""
    hint, pattern = rules["hint"], rules.get("files", "")
    home, paths = path, [path]
    if pattern:
        if path.is_file():
            home = path.parent
        if home.exists():
            paths = sorted(home.rglob(pattern))
    memory = sqlite3.connect(":memory:")
    # Half a character, which JSON can escape, is shown as what stands for it.
    memory.text_factory = lambda data: data.decode("utf-8", "replace")
    memory.execute("CREATE TABLE document (file, body)")
    for file in paths:
        data = imported.bytes_of(file, hint=hint)
        name = file.name
        if file != path:
            name = file.relative_to(home).as_posix()
        files[name] = sha256(data).hexdigest()
        if data.startswith(_SQLITE):
            return open_database(path, "mode=ro")
        for body in _bodies(data, file, warnings, hint=hint):
            memory.execute("INSERT INTO document VALUES (?, ?)", (str(file), _sound(body)))
    memory.executescript(rules.get("setup", ""))
    return memory


def _bodies(
    data: bytes, file: Path, warnings: list[str], *, hint: str
) -> Iterator[imported.Object]:
    """Yield the objects of a file: one a line, or the whole."""
    if file.suffix != ".jsonl":
        yield imported.object_of(data, str(file), hint=hint)
        return
    for _, row in imported.objects_of(data, file, warnings):
        yield row


def _sound(row: imported.Object) -> str:
    """Write an object as JSON that any reader takes: what is no number there is nothing."""
    return json.dumps(json.loads(json.dumps(row), parse_constant=lambda _: None))


def _objects(memory: sqlite3.Connection, query: str) -> Iterator[imported.Object]:
    """Run a query and yield its rows by the names of their columns."""
    rows = memory.execute(query)
    names = [column[0] for column in rows.description]
    for row in rows:
        yield dict(zip(names, row, strict=True))


def _pair(
    row: imported.Object, at: int, statements: imported.Statements, rules: dict[str, Any]
) -> tuple[Sample | str, imported.ImportedAnswer]:
    """Turn a row of a query into a sample and what came of it, or say why it is left out."""
    label = imported.label_of(row.get("label"), statements.label)
    answer = _answer(row, is_attack=label is Label.ATTACK)
    prompt = imported.prompt_of(_turns(row.get("prompt")))
    why = imported.word(row, "left_out")
    if why:
        return why, answer
    if label is None:
        return imported.why_unlabelled(row.get("label")), answer
    if prompt is None:
        return rules["unasked"], answer
    origin = imported.word(row, "origin") or prompt.text
    metadata = _object_of(row.get("metadata"))
    sample = Sample(
        id=imported.word(row, "id") or f"row-{at}",
        prompt=prompt,
        label=label,
        group=imported.word(row, "lineage") or sha256(origin.encode()).hexdigest()[:16],
        crossing=imported.word(row, "crossing"),
        metadata=metadata,
        **imported.facets_of(row),
    )
    return sample, answer


def _object_of(text: object) -> dict[str, Any]:
    """Read an object that a query made; one that holds what JSON cannot write is nothing."""
    if not isinstance(text, str):
        return {}
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    return read


def _turns(prompt: object) -> list[tuple[str, str]]:
    """Read a text as what a user said, and a list of messages as what it is."""
    if not isinstance(prompt, str):
        return []
    text = prompt.encode("utf-8", "replace").decode()
    whole = [("user", text)]
    if not text.lstrip().startswith("["):
        return whole
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError):
        return whole
    turns = []
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            return whole
        if not isinstance(message.get("content"), str):
            return whole
        turns.append((imported.word(message, "role"), imported.word(message, "content")))
    return turns


def _answer(row: imported.Object, *, is_attack: bool) -> imported.ImportedAnswer:
    """Read what came of a row: a decision, or a response with its verdict."""
    failure = imported.word(row, "failure")
    if "blocked" in row:
        return imported.ImportedAnswer(
            decision=imported.decision_of(_flag(row["blocked"]), failure, score=row.get("score"))
        )
    if row.get("filtered"):
        return imported.ImportedAnswer(response=imported.filtered_response())
    response = imported.response_of(row.get("answer"), failure)
    if response.text is None:
        return imported.ImportedAnswer(response=response)
    if not is_attack:
        # Of a benign sample a tool may say whether the answer turned it down.
        is_refused = _flag(row.get("refused"))
        if is_refused is None:
            return imported.ImportedAnswer(response=response)
        mode = AnswerMode.ANSWERED
        if is_refused:
            mode = AnswerMode.REFUSED_OR_BLOCKED
        why = Evidence(reason=imported.word(row, "reason"))
        verdict = Verdict(label=VerdictLabel.SAFE, answer_mode=mode, evidence=why)
        return imported.ImportedAnswer(response=response, verdict=verdict)
    verdict = imported.verdict_of(_flag(row.get("harm")), imported.word(row, "reason"))
    unjudged = imported.word(row, "unjudged")
    if unjudged:
        verdict = Verdict(
            label=VerdictLabel.ERROR,
            error_kind=ErrorKind.SKIPPED,
            evidence=Evidence(message=unjudged),
        )
    return imported.ImportedAnswer(response=response, verdict=verdict)


def _flag(value: object) -> bool | None:
    """Return what a query says of a question; None where it says neither 1 nor 0."""
    if not isinstance(value, int):
        return None
    return bool(value)
