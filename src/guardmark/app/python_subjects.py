"""Objects of a script or a notebook as the configuration and the parts of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from guardmark.app.parts.loading import LoadedConfig
from guardmark.app.settings import Config
from guardmark.config.mistakes import checked_settings
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.manifest import IN_PROCESS, PartManifest
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.core.values import dataclass
from guardmark.datasets.builtin import BUILTIN_SETS
from guardmark.datasets.formats.writing import is_source, write_rows
from guardmark.datasets.loading import load
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs
from guardmark.defenses.function import defense_from
from guardmark.defenses.guard import as_guard, is_defense
from guardmark.defenses.identity import identity_of
from guardmark.engine.plan import BuiltPart, Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guardmark.core.protocols import Attack
    from guardmark.core.sample import Sample
    from guardmark.defenses.answers import AssumedThreshold, ConfidenceMeaning


class RowSource(Protocol):
    """What loads rows: it stands for them, and its `name` for where they come from."""

    def load(self) -> Iterable[object]:
        """Return the rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseStatements:
    """What is said of defenses beside themselves."""

    assumed: AssumedThreshold
    name: str = ""
    threshold: float | None = None
    confidence: ConfidenceMeaning | None = None
    version: str = ""
    config: object = None
    block_labels: tuple[str, ...] = ()


def config_of_objects(
    subject: object,
    data: Any,
    statements: DefenseStatements,
    *,
    folder: Path,
    run_settings: Mapping[str, int],
    data_settings: Mapping[str, Any],
    attacks: Sequence[Attack | Callable[[str], str]] = (),
) -> tuple[LoadedConfig, Parts]:
    """Make a configuration and parts around defenses that exist as objects.

    Rows are written below the folder of the run, once everything else that was stated is checked.
    """
    made = _parts_of(_by_name(subject, statements.name), statements)
    parts = Parts(defenses=tuple(built for built, _ in made))
    document: dict[str, Any] = {
        "version": 1,
        "name": "run",
        "data": [_origin_of(data) | dict(data_settings)],
        "defenses": {built.manifest.name: _in_process(built, found) for built, found in made},
        "run": dict(run_settings),
    }
    source = Source(shown_as="run()")
    config = checked_settings(Config, document, source)
    home = Path.cwd()
    rows = data
    if attacks:
        rows = with_variants(_samples_of(data, data_settings), attacks, seed=config.run.seed)
    if not isinstance(rows, str | Path):
        written = write_rows(rows, folder / "data")
        entry = {"path": f"data/{written.name}", "name": _name_of_data(data)}
        if not attacks:  # whose rows are samples already
            entry |= data_settings
        document["data"] = [entry]
        config, home = checked_settings(Config, document, source), folder
    return LoadedConfig(config=config, folder=home, source=source), parts


def entry_of(source: str | Path) -> dict[str, str]:
    """Return the entry of `data:` that a name or a path stands for."""
    known = {each.target for each in BUILTIN_SETS}
    name = str(source)
    if name in known:
        return {"builtin": name}
    is_word = isinstance(source, str) and not set(name) & set("./\\*?:")
    if is_word and not Path(name).exists():
        raise UnknownName("built-in data set or file", name, known)
    return {"path": name}


def _origin_of(data: object) -> dict[str, str]:
    """Return where data come from; rows get the name of a file that is written later."""
    if isinstance(data, str | Path):
        return entry_of(data)
    return {"path": "rows.jsonl", "name": _name_of_data(data)}


def _name_of_data(data: object) -> str:
    if isinstance(data, str | Path):
        return str(data)
    if is_source(data):
        return str(getattr(data, "name", "") or "data")
    return "data"


def _samples_of(data: Any, settings: Mapping[str, Any]) -> Iterable[Sample]:
    """Read the samples of a set or a file; rows are read as from a file, too."""
    called = Source(shown_as="run()")
    with TemporaryDirectory(prefix="guardmark-") as folder:
        source = data if isinstance(data, str | Path) else write_rows(data, Path(folder))
        entry = checked_settings(DataSettings, entry_of(source) | dict(settings), called)
        return list(load(dataset_specs(entry, Path.cwd()), DEFAULT_TAXONOMY).samples())


def with_variants(
    samples: Iterable[Sample], attacks: Sequence[Attack | Callable[[str], str]], *, seed: int
) -> Iterator[Sample]:
    """Yield samples, each attack followed by what own attacks make of it, in one group with it.

    A rewriting that leaves a text as it is adds nothing.
    """
    named = {_attack_name(each): each for each in attacks}
    if len(named) < len(attacks):
        raise ConfigError("Two attacks share a name.\nNext: give each a name of its own.")
    for sample in samples:
        yield sample
        if not sample.is_attack:
            continue
        for name, attack in named.items():
            text = _rewritten(attack, name, sample, seed=seed)
            if text == sample.prompt.text:
                continue
            yield replace(
                sample,
                id=f"{sample.id}~{name}",
                prompt=sample.prompt.with_text(text),
                variant=name,
                group=sample.lineage,
            )


def _attack_name(attack: object) -> str:
    return re.sub(r"[^A-Za-z0-9_.@-]+", "_", _name_of(attack))


def _rewritten(
    attack: Attack | Callable[[str], str], name: str, sample: Sample, *, seed: int
) -> str:
    """Ask an own attack for its text."""
    method = getattr(attack, "apply", None)
    if callable(method):
        drawn = sha256(f"{seed}\0{name}\0{sample.id}".encode()).digest()
        text = method(sample.prompt.text, seed=drawn)
    else:
        text = attack(sample.prompt.text)  # type: ignore[operator]
    if not isinstance(text, str):
        raise ConfigError(
            f"The attack {name} returned {type(text).__name__}, not a text.\n"
            "Next: return the rewritten text; the same text where there is nothing to rewrite."
        )
    return text


def _by_name(subject: object, name: str) -> Mapping[str, object]:
    """Name what is measured: one thing, several in a list, or several in a dict."""
    if isinstance(subject, Mapping):
        return subject
    if not isinstance(subject, list | tuple):
        return {name or _name_of(subject): subject}
    named = {_name_of(each): each for each in subject}
    if len(named) < len(subject):
        raise ConfigError(
            "Two defenses of the list share a name.\nNext: give a dict, with a name for each."
        )
    return named


def _name_of(subject: object) -> str:
    stated = getattr(subject, "name", "") or getattr(subject, "__name__", "")
    return str(stated).strip("<> ") or "defense"


def _parts_of(
    subjects: Mapping[str, object], statements: DefenseStatements
) -> list[tuple[BuiltPart, object]]:
    """Make a part of each object, by its name; the object stands beside its part."""
    if not subjects:
        raise ConfigError("The dict of defenses is empty.\nNext: name at least one defense.")
    if len(subjects) > 1 and (statements.version or statements.config is not None):
        raise ConfigError(
            "The arguments version and config describe one defense, and there are several.\n"
            "Next: give each object an attribute version or config."
        )
    built: dict[str, tuple[BuiltPart, object]] = {}
    for stated, subject in subjects.items():
        is_part = is_defense(subject)
        # As a configuration allows it; a part that has a name keeps it.
        own = _name_of(subject) if is_part else stated
        name = re.sub(r"[^A-Za-z0-9_.@-]+", "_", own).lstrip(".@-")[:80] or "defense"
        if name in built:
            raise ConfigError(f"Two defenses would be called {name!r}.\nNext: rename {stated!r}.")
        built[name] = _built(name, subject, statements, is_part=is_part), subject
    return list(built.values())


def _in_process(built: BuiltPart, subject: object) -> dict[str, object]:
    """Say what a configuration can say of an object: where it comes from, not what it is."""
    described: Any = subject
    if not hasattr(described, "__qualname__"):
        described = type(subject)
    module = getattr(described, "__module__", "")
    entry: dict[str, object] = {
        "type": IN_PROCESS,
        "object": f"{module}:{described.__qualname__}",
        "fingerprint": built.manifest.fingerprint,
    }
    return entry


def _built(name: str, subject: Any, statements: DefenseStatements, *, is_part: bool) -> BuiltPart:
    """Make a part of an object, with all that can be known of it."""
    called, defense = subject, subject
    if not is_part:
        made = defense_from(
            subject,
            name=name,
            threshold=statements.threshold,
            confidence=statements.confidence,
            block_labels=statements.block_labels,
            assumed=statements.assumed,
        )
        defense, called = made, made.function
    guard = as_guard(defense)
    identity = identity_of(called, version=statements.version, config=statements.config)
    known = [identity.fingerprint, str(statements.threshold), str(statements.confidence)]
    settings = identity.settings
    if statements.block_labels:
        settings["block_labels"] = list(statements.block_labels)
        known.append(",".join(statements.block_labels))
    if statements.confidence:
        settings["confidence"] = statements.confidence
    manifest = PartManifest(
        name=name,
        kind="defense",
        type="object",
        version=identity.version,
        fingerprint=sha256("\n".join(known).encode()).hexdigest(),
        view=guard.capabilities.view.value,
        threshold=statements.threshold,
        settings=settings,
    )
    return BuiltPart(part=guard, manifest=manifest)
