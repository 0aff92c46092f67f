"""The public verbs of `import guardmark`, for notebooks and scripts."""

from __future__ import annotations

import re
import sys
import warnings
import webbrowser
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.analysis.run import analyse_run
from guardmark.app.measuring import measure
from guardmark.app.parts.loading import LoadedConfig, load_config
from guardmark.app.results.opened_run import find_run, open_run
from guardmark.app.results.reporting import finish
from guardmark.app.run.progress_line import ProgressLine, is_notebook
from guardmark.app.run.run_folder import RUNS
from guardmark.app.run.running import RunOptions, Session, run_parts
from guardmark.app.settings import Config
from guardmark.config.mistakes import checked_settings
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError, StoreError, needs
from guardmark.core.manifest import PartManifest
from guardmark.core.protocols import BatchDefense, Defense, InlineDefense
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import BUILTIN_SETS
from guardmark.datasets.formats.writing import is_source, write_rows
from guardmark.datasets.loading import LoadedData, load
from guardmark.datasets.settings import DataSettings, dataset_specs
from guardmark.defenses.function import defense_from
from guardmark.defenses.identity import identity_of
from guardmark.engine.plan import BuiltPart, Parts
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import LineChart
from guardmark.reports.figures.files import figure_svg
from guardmark.store.columns import record_columns, sample_columns
from guardmark.store.reader import RecordReader
from guardmark.store.schema import OUTCOME_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.sample import Sample
    from guardmark.defenses.answers import ConfidenceMeaning
    from guardmark.store.columns import RecordColumns, SampleColumns


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoadedRun:
    """A run read from its records.

    Attributes:
        folder: Where it lies.
        analysis: Every figure of its report.
    """

    folder: Path
    analysis: RunAnalysis

    def __fspath__(self) -> str:
        """Return the folder: a run is taken wherever the path of one is."""
        return str(self.folder)

    def __repr__(self) -> str:
        """Tell the folder, the samples, and a line for each of the first defenses."""
        return f"LoadedRun {self.folder}: {self.analysis!r}"

    def _repr_html_(self) -> str:
        """Draw the verdicts with their figures, and the picture that a report begins with."""
        document = build_document(self.analysis)
        rows = "".join(
            f"<tr><th>{escape(each.title or each.defense)}</th>"
            f"<td>{escape(each.answer or 'baseline')}</td><td>{escape(each.figures)}</td></tr>"
            for each in document.verdicts
        )
        plane = next((each for each in document.blocks if isinstance(each, LineChart)), None)
        confidence = f"{100 * self.analysis.settings.confidence:g} % intervals in brackets"
        drawn = b64encode(figure_svg(plane).encode()).decode() if plane else ""
        image = f'<img alt="" src="data:image/svg+xml;base64,{drawn}">' * bool(drawn)
        return f"<table><caption>{confidence}</caption>{rows}</table>{image}"

    def to_frame(self) -> Any:
        """Return the headline rates as a pandas data frame, one row a defense.

        Raises:
            ConfigError: If pandas is not installed.
        """
        rows = [{"defense": d.name} | d.card.columns() for d in self.analysis.defenses]
        return _pandas().DataFrame(rows)

    def samples_frame(self) -> Any:
        """Return what each defense decided as a pandas data frame, one row an answer.

        Raises:
            ConfigError: If pandas is not installed.
        """
        pandas, samples = _pandas(), self.samples()
        facets = ("category", "subcategory", "severity", "language", "variant", "technique")
        table = pandas.DataFrame({"id": list(samples.ids), "is_attack": samples.is_attack})
        for name in (*facets, "source", "group"):
            facet = getattr(samples, name)
            table[name] = pandas.Series(list(facet.names), dtype=object).take(facet.codes).array
        parts = []
        for each in self.analysis.defenses:
            records = self.records(each.name)
            part = table.iloc[records.sample].reset_index(drop=True)
            part["defense"], part["repeat"] = each.name, records.repeat
            part["outcome"] = [OUTCOME_NAMES[code] for code in records.outcome]
            part["score"], latency = records.score, records.latency_ns / 1e6
            part["latency_ms"] = pandas.Series(latency).where(records.latency_ns >= 0)
            parts.append(part)
        return pandas.concat(parts, ignore_index=True)

    def open_report(self) -> Path:
        """Open the HTML report in the browser, and return where it lies.

        Raises:
            StoreError: If the run has no HTML report.
        """
        page = find_run(self.folder).report_html.resolve()
        if not page.exists():
            raise StoreError(f"{page} is missing.\nNext: guardmark.report({str(self.folder)!r})")
        webbrowser.open(page.as_uri())
        return page

    def samples(self) -> SampleColumns:
        """Return the samples as numpy columns, one row a sample."""
        with RecordReader(self.folder / "records.sqlite") as reader:
            return sample_columns(reader)

    def records(self, defense: str) -> RecordColumns:
        """Return the decisions of one defense as numpy columns.

        Args:
            defense: Its name in the run.

        Returns:
            One row a record; arrays may be read-only.
        """
        with RecordReader(self.folder / "records.sqlite") as reader:
            return record_columns(reader, defense)


def _pandas() -> Any:
    with needs("A data frame needs pandas", "pandas"):
        return import_module("pandas")


def load_dataset(source: str | Path, **settings: Any) -> LoadedData:
    """Read and validate a data set.

    Args:
        source: Name of a built-in set (`core`), or a file.
        **settings: As under `data:` in a configuration: `label`, `map`, `filter` ...

    Returns:
        The samples with their manifest; iterate over `.samples()`.

    Raises:
        ConfigError: If a setting is unknown or wrong.
        DatasetError: If a row cannot be used; every one is named.
    """
    given, called = {**_origin(source), **settings}, Source(shown_as="load_dataset()")
    entry = checked_settings(DataSettings, given, called)
    return load(dataset_specs(entry, Path.cwd()), DEFAULT_TAXONOMY)


def load_run(path: str | PathLike[str]) -> LoadedRun:
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
    subject: str | Path | Defense | Callable[[str], object] | Mapping[str, object],
    data: str | Path | Iterable[Sample | Mapping[str, Any]] = "core",
    *,
    name: str = "",
    threshold: float | None = None,
    confidence: ConfidenceMeaning | None = None,
    version: str = "",
    config: object = None,
    out: str | Path | None = None,
    **settings: Any,
) -> LoadedRun:
    """Measure a defense, a plain function, several, or everything a configuration names.

    Args:
        subject: A configuration file, a `Defense`, a function from text to bool, float or
            `Decision`, or several: a dict by name, where a `Defense` keeps its own.
        data: A built-in set, a file, or rows: samples, dicts or instances of a data class in any
            iterable, an object whose method `load` gives them (or several), a pandas or polars
            data frame, a Hugging Face data set. Rows are kept in a file beside the run. Not used
            with a configuration file.
        name: Name of the one defense in reports; the function's own name if not given.
        threshold: Score from which a float blocks.
        confidence: What a field `confidence` of an answer means: `risk`, how dangerous the input
            is, or `certainty`, how sure the decision is.
        version: Version of the one defense; its attribute `version` if not given.
        config: Configuration of the one defense as plain values; its attribute `config` if not
            given. Both are in the report, and another one is another run.
        out: Folder of the run; a new one under `runs/` if not given.
        **settings: How data is read, as under `data:` in a configuration: `map`, `label` ...

    Returns:
        The finished run.

    Raises:
        GuardmarkError: As the command line would; its message says what to do.
    """
    options, session = RunOptions(out=Path(out) if out is not None else None), Session()
    if isinstance(subject, str | Path):
        loaded, parts = load_config(Path(subject)), None
    else:
        if not isinstance(data, str | Path):
            path = write_rows(data, (options.out.parent if options.out else RUNS) / "data")
            called = str(getattr(data, "name", "") or "data") if is_source(data) else "data"
            data, settings = path, {"name": called, **settings}
        entry = {**_origin(data), **settings}
        subjects = subject if isinstance(subject, Mapping) else {name or _name_of(subject): subject}
        described = _Described(
            threshold=threshold, confidence=confidence, version=version, config=config
        )
        loaded, parts = _around(subjects, entry, described)
    with ProgressLine(session.progress, quiet=not (sys.stderr.isatty() or is_notebook())):
        if parts is None:
            result = measure(loaded, options, session)
        else:
            result = run_parts(loaded, parts, services=None, options=options, session=session)
    finished = finish(result.folder, loaded.config, formats=loaded.config.report)
    notes = (*result.warnings, *result.summary.notes, *finished.notes, *finished.complaints)
    for warning in notes:
        warnings.warn(warning, stacklevel=2)
    return load_run(result.folder.path)


def compare(path: str | PathLike[str], *others: str | PathLike[str]) -> RunComparison:
    """Compare defenses, paired on the same samples.

    Args:
        path: A run, or its folder.
        *others: Later runs, or their folders, to compare with the first over the samples that
            all of them have; none: the defenses of the one run are compared with each other.

    Returns:
        Differences with intervals, tests and discordant counts: of the defenses, and under
        `system` of what came out of guard and model, where the runs have a pipeline.

    Raises:
        ConfigError: If the one run holds fewer than two defenses.
        IncomparableRuns: If the runs share no sample, or label the same content differently.
    """
    if others:
        from guardmark.app.results.reading import compare_runs

        return compare_runs([Path(path), *(Path(other) for other in others)]).comparison
    analysis = load_run(path).analysis
    comparison = analysis.comparison or analysis.systems
    if comparison is None:
        raise ConfigError(f"{Path(path)} holds one defense: name a second run too.")
    return replace(comparison, system=analysis.systems)


def report(path: str | PathLike[str]) -> Path:
    """Write the reports of a run again from its records.

    Args:
        path: The run, or its folder.

    Returns:
        The HTML report.
    """
    from guardmark.app.results.reporting import report as write_report

    write_report(Path(path), formats=("html", "md", "json", "csv"))
    return find_run(Path(path)).report_html


def _origin(source: str | Path) -> dict[str, str]:
    builtin = {one.target for one in BUILTIN_SETS}
    return {"builtin": str(source)} if str(source) in builtin else {"path": str(source)}


def _name_of(subject: object) -> str:
    stated = getattr(subject, "name", "") or getattr(subject, "__name__", "")
    return str(stated).strip("<> ") or "defense"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What is said of defenses beside themselves."""

    threshold: float | None
    confidence: ConfidenceMeaning | None
    version: str
    config: object


def _around(
    subjects: Mapping[str, object], data: dict[str, Any], described: _Described
) -> tuple[LoadedConfig, Parts]:
    """A configuration and parts around defenses that exist as objects, by their names."""
    if not subjects:
        raise ConfigError("The dict of defenses is empty.\nNext: name at least one defense.")
    if len(subjects) > 1 and (described.version or described.config is not None):
        raise ConfigError(
            "The arguments version and config describe one defense, and there are several.\n"
            "Next: give each object an attribute version or config."
        )
    built: dict[str, BuiltPart] = {}
    for stated, subject in subjects.items():
        is_part = isinstance(subject, Defense | InlineDefense | BatchDefense)
        # As a configuration allows it; a part that has a name keeps it.
        own = _name_of(subject) if is_part else stated
        name = re.sub(r"[^A-Za-z0-9_.@-]+", "_", own).lstrip(".@-")[:80] or "defense"
        if name in built:
            raise ConfigError(f"Two defenses would be called {name!r}.\nNext: rename {stated!r}.")
        built[name] = _built(name, subject, described, is_part=is_part)
    settings = {"version": 1, "name": "run", "data": [data], "defenses": {x: {} for x in built}}
    source = Source(shown_as="run()")
    config = checked_settings(Config, settings, source)
    loaded = LoadedConfig(config=config, folder=Path.cwd(), source=source)
    return loaded, Parts(defenses=tuple(built.values()))


def _built(name: str, subject: Any, described: _Described, *, is_part: bool) -> BuiltPart:
    """Make a part of an object, with all that can be known of it."""
    threshold, called, defense = described.threshold, subject, subject
    if not is_part:
        made = defense_from(
            subject, name=name, threshold=threshold, confidence=described.confidence
        )
        defense, called = made, made.function
    identity = identity_of(called, version=described.version, config=described.config)
    known = [identity.fingerprint, str(threshold), str(described.confidence)]
    settings = identity.settings
    if described.confidence:
        settings["confidence"] = described.confidence
    manifest = PartManifest(
        name=name,
        kind="defense",
        type="object",
        version=identity.version,
        fingerprint=sha256("\n".join(known).encode()).hexdigest(),
        view=str(getattr(defense, "view", "text")),
        threshold=threshold,
        settings=settings,
    )
    return BuiltPart(part=defense, manifest=manifest)
