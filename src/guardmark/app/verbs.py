"""The public verbs of `import guardmark`, for notebooks and scripts."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.analysis.run import analyse_run
from guardmark.app.parts.building import BuiltPart, Parts
from guardmark.app.parts.loading import LoadedConfig, load_config
from guardmark.app.results.opened_run import find_run, open_run
from guardmark.app.results.reporting import finish
from guardmark.app.run.running import RunOptions, Session, run_parts
from guardmark.app.run.running import run as run_config_file
from guardmark.app.settings import Config
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError
from guardmark.core.manifest import PartManifest
from guardmark.core.protocols import BatchDefense, Defense, InlineDefense
from guardmark.core.taxonomy import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import BUILTIN_SETS
from guardmark.datasets.loading import LoadedData, load
from guardmark.datasets.settings import DataSettings, dataset_specs
from guardmark.defenses.function import defense_from
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.run import RunAnalysis
    from guardmark.store.columns import RecordColumns, SampleColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A run read from its records.

    Attributes:
        folder: Where it lies.
        analysis: Every figure of its report.
    """

    folder: Path
    analysis: RunAnalysis

    def samples(self) -> SampleColumns:
        """Return the samples as numpy columns, one row a sample."""
        from guardmark.store.columns import sample_columns

        with RecordReader(self.folder / "records.sqlite") as reader:
            return sample_columns(reader)

    def records(self, defense: str) -> RecordColumns:
        """Return the decisions of one defense as numpy columns.

        Args:
            defense: Its name in the run.

        Returns:
            One row a record.
        """
        from guardmark.store.columns import record_columns

        with RecordReader(self.folder / "records.sqlite") as reader:
            return record_columns(reader, defense)


def load_dataset(source: str | Path, **settings: Any) -> LoadedData:
    """Read and validate a data set.

    Args:
        source: Name of a built-in set (`core`), or a file.
        **settings: As under `data:` in a configuration: `label`, `map`, `filter` ...

    Returns:
        The samples with their manifest; iterate over `.samples()`.

    Raises:
        DatasetError: If a row cannot be used; every one is named.
    """
    entry = DataSettings.model_validate({**_origin(source), **settings})
    return load(dataset_specs(entry, Path.cwd()), DEFAULT_TAXONOMY)


def load_run(path: str | Path) -> LoadedRun:
    """Read a finished run; nothing is called.

    Args:
        path: The folder of the run.

    Returns:
        Its figures, and its records as columns.

    Raises:
        StoreError: If there is no run, or its records are damaged.
    """
    with open_run(Path(path)) as opened:
        analysis = analyse_run(opened.reader, opened.settings)
        return LoadedRun(folder=opened.folder.path, analysis=analysis)


def run(
    subject: str | Path | Defense | Callable[[str], object],
    data: str | Path = "core",
    *,
    name: str = "",
    threshold: float | None = None,
    out: str | Path | None = None,
) -> LoadedRun:
    """Measure a defense, a plain function, or everything a configuration names.

    Args:
        subject: A configuration file, a `Defense`, or a function from text to bool, float
            or `Decision`.
        data: A built-in set or a file; not used with a configuration file.
        name: Name of the defense in reports; the function's own name if not given.
        threshold: Score from which a float blocks.
        out: Folder of the run; a new one under `runs/` if not given.

    Returns:
        The finished run.

    Raises:
        GuardmarkError: As the command line would; its message says what to do.
    """
    options = RunOptions(out=Path(out) if out is not None else None)
    if isinstance(subject, str | Path):
        loaded = load_config(Path(subject))
        result = run_config_file(loaded, options, Session())
    else:
        loaded, parts = _around(subject, data, name=name, threshold=threshold)
        result = run_parts(loaded, parts, services=None, options=options, session=Session())
    finish(result.folder, loaded.config, formats=loaded.config.report)
    return load_run(result.folder.path)


def compare(path: str | Path, *others: str | Path) -> RunComparison:
    """Compare defenses, paired on the same samples.

    Args:
        path: The folder of a run.
        *others: Folders of later runs, to compare with the first over the samples that all of
            them have; none: the defenses of the one run are compared with each other.

    Returns:
        Differences with intervals, tests and discordant counts.

    Raises:
        ConfigError: If the one run holds fewer than two defenses.
        IncomparableRuns: If the runs share no sample, or label the same content differently.
    """
    if others:
        from guardmark.app.results.comparing import compare_runs

        return compare_runs([Path(path), *(Path(other) for other in others)]).comparison
    comparison = load_run(path).analysis.comparison
    if comparison is None:
        raise ConfigError(f"{path} holds one defense; a comparison needs two.")
    return comparison


def report(path: str | Path) -> Path:
    """Write the reports of a run again from its records.

    Args:
        path: The folder of the run.

    Returns:
        The HTML report.
    """
    from guardmark.app.results.reporting import report as write_report

    write_report(Path(path), formats=("html", "md", "json", "csv"))
    return find_run(Path(path)).report_html


def _origin(source: str | Path) -> dict[str, str]:
    builtin = {one.name for one in BUILTIN_SETS}
    return {"builtin": str(source)} if str(source) in builtin else {"path": str(source)}


def _around(
    subject: Defense | Callable[[str], object],
    data: str | Path,
    *,
    name: str,
    threshold: float | None,
) -> tuple[LoadedConfig, Parts]:
    """A configuration and parts around one defense that exists as an object."""
    stated = name or getattr(subject, "name", "") or getattr(subject, "__name__", "defense")
    # A name as a configuration allows it; a lambda has none of its own.
    plain = re.sub(r"[^A-Za-z0-9_.@-]+", "_", stated.strip("<> ")).lstrip(".@-")
    given = plain[:80] or "defense"
    defense: object = subject
    if not isinstance(subject, Defense | InlineDefense | BatchDefense):
        defense = defense_from(subject, name=given, threshold=threshold)
    config = Config.model_validate(
        {"version": 1, "name": "run", "data": [_origin(data)], "defenses": {given: {}}}
    )
    manifest = PartManifest(
        name=given,
        kind="defense",
        type="object",
        fingerprint=_fingerprint(subject),
        view=str(getattr(defense, "view", "text")),
        threshold=threshold,
    )
    loaded = LoadedConfig(config=config, folder=Path.cwd(), source=Source(shown_as="run()"))
    return loaded, Parts(defenses=(BuiltPart(part=defense, manifest=manifest),))


def _fingerprint(subject: object) -> str:
    """Hash the source of a function or class, so that a changed one is another run."""
    described = subject if inspect.isroutine(subject) else type(subject)
    try:
        text = inspect.getsource(described)
    except (OSError, TypeError):
        text = repr(described)
    return sha256(text.encode()).hexdigest()
