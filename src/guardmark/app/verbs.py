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
from typing import TYPE_CHECKING, Any, Literal

from guardmark.analysis.run import analyse_run
from guardmark.app.measuring import measure
from guardmark.app.parts.loading import LoadedConfig, load_config
from guardmark.app.results.opened_run import find_run, open_run
from guardmark.app.results.reporting import finish
from guardmark.app.run.progress_line import ProgressLine, is_notebook
from guardmark.app.run.run_folder import RUNS
from guardmark.app.run.running import RunOptions, Session, run_parts
from guardmark.app.settings import Config, GateSettings
from guardmark.config.mistakes import checked_settings
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError, StoreError, UnknownName, needs
from guardmark.core.manifest import PartManifest
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import BUILTIN_SETS
from guardmark.datasets.formats.writing import is_source, write_rows
from guardmark.datasets.loading import LoadedData, load
from guardmark.datasets.settings import DataSettings, dataset_specs
from guardmark.defenses.answers import AssumedThreshold
from guardmark.defenses.function import defense_from
from guardmark.defenses.guard import as_guard, is_defense
from guardmark.defenses.identity import identity_of
from guardmark.engine.plan import BuiltPart, Parts
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import LineChart
from guardmark.reports.figures.files import figure_svg
from guardmark.store.columns import record_columns, sample_columns
from guardmark.store.reader import RecordReader
from guardmark.store.schema import OUTCOME_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike

    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.results.gating import Gated
    from guardmark.core.protocols import Defense
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

    def to_frame(self, by: str = "") -> Any:
        """Return rates as a pandas data frame.

        Args:
            by: Empty for the headline rates, one row a defense; or a facet such as `category`,
                for one row a defense, value of the facet and label.

        Raises:
            ConfigError: If pandas is not installed, or the run has no such facet.
        """
        if by:
            return _pandas().DataFrame(list(self._slice_rows(by)))
        rows = [{"defense": d.name} | d.card.columns() for d in self.analysis.defenses]
        return _pandas().DataFrame(rows)

    def _slice_rows(self, facet: str) -> Iterator[dict[str, Any]]:
        """Yield every slice of a facet."""
        for defense in self.analysis.defenses:
            known = sorted({each.facet for each in defense.slices})
            if facet not in known:
                raise UnknownName("facet of this run", facet, known)
            for table in defense.slices:
                if table.facet != facet:
                    continue
                for each in table.rates:
                    yield {
                        "defense": defense.name,
                        facet: each.name,
                        "label": "attack" if table.is_attack else "benign",
                        "rate": each.rate.value,
                        "low": each.rate.low,
                        "high": each.rate.high,
                        "n": each.rate.trials,
                        "asked": each.asked,
                    }

    def samples_frame(self, *, texts: bool = True) -> Any:
        """Return what each defense decided as a pandas data frame, one row an answer.

        Args:
            texts: Whether the words of each sample stand in a column `text`.

        Raises:
            ConfigError: If pandas is not installed.
        """
        pandas, samples = _pandas(), self.samples()
        facets = ("category", "subcategory", "severity", "language", "variant", "technique")
        table = pandas.DataFrame({"id": list(samples.ids), "is_attack": samples.is_attack})
        for name in (*facets, "source", "group"):
            facet = getattr(samples, name)
            table[name] = pandas.Series(list(facet.names), dtype=object).take(facet.codes).array
        if texts:
            with RecordReader(self.folder / "records.sqlite") as reader:
                table["text"] = [each.prompt.words for each in reader.samples()]
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


def run(  # noqa: PLR0913 - the options of the command line, by keyword
    subject: str | Path | Defense | Callable[[str], object] | Mapping[str, object] | object,
    data: str | Path | Iterable[Sample | Mapping[str, Any]] = "core",
    *,
    name: str = "",
    threshold: float | None = None,
    confidence: ConfidenceMeaning | None = None,
    version: str = "",
    config: object = None,
    block_labels: Sequence[str] = (),
    limit: int | None = None,
    repeats: int | None = None,
    seed: int | None = None,
    concurrency: int | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> LoadedRun:
    """Measure a defense, a plain function, several, or everything a configuration names.

    Args:
        subject: A configuration file, a `Defense`, a function from text to bool, float or
            `Decision`, or several: a list, or a dict by name, where a `Defense` keeps its own.
            Also a pipeline of transformers, a scikit-learn estimator, a scanner of LLM Guard, a
            guardrail of any-guardrail, a runnable of LangChain.
        data: A built-in set, a file, or rows: samples, dicts or instances of a data class in any
            iterable, an object whose method `load` gives them (or several), a pandas or polars
            data frame, a Hugging Face data set. Rows are kept in a file beside the run. Not used
            with a configuration file.
        name: Name of the one defense in reports; the function's own name if not given.
        threshold: Score from which a float blocks; 0.5 stands in, with a warning, where a function
            gives floats and none is stated.
        confidence: What a field `confidence` of an answer means: `risk`, how dangerous the input
            is, or `certainty`, how sure the decision is.
        version: Version of the one defense; its attribute `version` if not given.
        config: Configuration of the one defense as plain values; its attribute `config` if not
            given. Both are in the report, and another one is another run.
        block_labels: Labels of a classifier that mean: block.
        limit: Measure so many attacks and benign samples in all, evenly drawn; a first look.
        repeats: How often each sample is asked; 1 if not given.
        seed: Of every draw; 7 if not given.
        concurrency: Samples under way at once; 16 if not given.
        out: Folder of the run; a new one under `runs/` if not given.
        **settings: How data is read, as under `data:` in a configuration: `map`, `label` ...

    Returns:
        The finished run.

    Raises:
        GuardmarkError: As the command line would; its message says what to do.
    """
    folder = Path(out) if out is not None else None
    options, session = RunOptions(out=folder, limit=limit), Session()
    stated = {"repeats": repeats, "seed": seed, "concurrency": concurrency}
    how = {key: value for key, value in stated.items() if value is not None}
    assumed = AssumedThreshold()
    if isinstance(subject, str | Path):
        loaded, parts = load_config(Path(subject)), None
        if how:
            raise ConfigError(
                f"A configuration states {', '.join(how)} itself.\n"
                f"Next: write `run: {{{next(iter(how))}: ...}}` in {subject}."
            )
    else:
        if not isinstance(data, str | Path):
            path = write_rows(data, (options.out.parent if options.out else RUNS) / "data")
            called = str(getattr(data, "name", "") or "data") if is_source(data) else "data"
            data, settings = path, {"name": called, **settings}
        entry = {**_origin(data), **settings}
        described = _Described(
            threshold=threshold,
            confidence=confidence,
            version=version,
            config=config,
            block_labels=_labels(block_labels),
            assumed=assumed,
            how=how,
        )
        loaded, parts = _around(_by_name(subject, name), entry, described)
    with ProgressLine(session.progress, quiet=not (sys.stderr.isatty() or is_notebook())):
        if parts is None:
            result = measure(loaded, options, session)
        else:
            result = run_parts(loaded, parts, services=None, options=options, session=session)
    finished = finish(result.folder, loaded.config, formats=loaded.config.report)
    if assumed.is_used:
        value = f"{assumed.value:g}"
        session_note = f"No threshold was stated: scores block from {value} on (threshold={value})."
        warnings.warn(session_note, stacklevel=2)
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


def gate(
    path: str | PathLike[str],
    *,
    policy: str | Path | None = None,
    baseline: str | PathLike[str] | None = None,
    **limits: Any,
) -> Gated:
    """Check a run against limits, as `guardmark gate` does; nothing is called.

    Args:
        path: The run, or its folder.
        policy: File with the limits; the run's own section `gate` if neither is given.
        baseline: Run of the release that is out, for `regression_margin`.
        **limits: Limits as under `gate:` in a configuration: `asr_upper=0.2, fpr_upper=0.1`.

    Returns:
        The answer: `.result.standing` is held, broken or open, `.result.checks` has each limit.

    Raises:
        ConfigError: If a limit is unknown or wrong, or nothing is limited.
    """
    from guardmark.app.results.gating import check_run, gate_policy
    from guardmark.app.results.gating import gate as check_gate

    base = None if baseline is None else Path(baseline)
    if not limits:
        return check_gate(Path(path), policy=Path(policy) if policy else None, baseline=base)
    if policy is not None:
        raise ConfigError("Limits are given by policy= or by name, not both.")
    stated = checked_settings(GateSettings, limits, Source(shown_as="gate()"))
    with open_run(Path(path)) as opened:
        found = None if base is None else find_run(base)
        return check_run(opened, gate_policy(stated), baseline=found)


def export(path: str | PathLike[str], form: str, *, out: str | Path | None = None) -> Path:
    """Write the records of a run in another form, as `guardmark export` does.

    Args:
        path: The run, or its folder.
        form: `csv`, `jsonl`, `parquet`, `latex`, `inspect`, `promptfoo` ...
        out: Where to; its usual name inside the run's folder if not given.

    Returns:
        The file or the folder that was written.
    """
    from guardmark.app.results.artefacts import export as write_export

    return write_export(Path(path), form, out=Path(out) if out is not None else None).path


def import_run(
    tool: str,
    path: str | Path,
    *,
    label: Literal["attack", "benign"] | None = None,
    out: str | Path | None = None,
) -> LoadedRun:
    """Read a finished run of another tool into records; nothing is called.

    Args:
        tool: Its name, as `guardmark import` takes it: `inspect`, `promptfoo`, `garak` ...
        path: Its file or folder.
        label: Label of every sample, where the file states none.
        out: Folder of the run; a new one under `runs/` if not given.

    Returns:
        The run, with every figure.
    """
    from guardmark.app.run.importing import import_run as take_over
    from guardmark.core.sample import Label
    from guardmark.interchange.imported import Statements

    stated = Statements(label=None if label is None else Label(label))
    folder = Path(out) if out is not None else None
    taken = take_over(tool, Path(path), now=Session().now, out=folder, statements=stated)
    for note in taken.notes:
        warnings.warn(note, stacklevel=2)
    finish(taken.folder, taken.config, formats=taken.config.report)
    return load_run(taken.folder.path)


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


def _labels(stated: Sequence[str]) -> tuple[str, ...]:
    return (stated,) if isinstance(stated, str) else tuple(stated)


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
    block_labels: tuple[str, ...]
    assumed: AssumedThreshold
    how: Mapping[str, int]  # Settings of `run:`.


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
        is_part = is_defense(subject)
        # As a configuration allows it; a part that has a name keeps it.
        own = _name_of(subject) if is_part else stated
        name = re.sub(r"[^A-Za-z0-9_.@-]+", "_", own).lstrip(".@-")[:80] or "defense"
        if name in built:
            raise ConfigError(f"Two defenses would be called {name!r}.\nNext: rename {stated!r}.")
        built[name] = _built(name, subject, described, is_part=is_part)
    settings = {
        "version": 1,
        "name": "run",
        "data": [data],
        "defenses": {x: {} for x in built},
        "run": dict(described.how),
    }
    source = Source(shown_as="run()")
    config = checked_settings(Config, settings, source)
    loaded = LoadedConfig(config=config, folder=Path.cwd(), source=source)
    return loaded, Parts(defenses=tuple(built.values()))


def _built(name: str, subject: Any, described: _Described, *, is_part: bool) -> BuiltPart:
    """Make a part of an object, with all that can be known of it."""
    threshold, called, defense = described.threshold, subject, subject
    if not is_part:
        made = defense_from(
            subject,
            name=name,
            threshold=threshold,
            confidence=described.confidence,
            block_labels=described.block_labels,
            assumed=described.assumed,
        )
        defense, called = made, made.function
    guard = as_guard(defense)
    identity = identity_of(called, version=described.version, config=described.config)
    known = [identity.fingerprint, str(threshold), str(described.confidence)]
    settings = identity.settings
    if described.block_labels:
        settings["block_labels"] = list(described.block_labels)
        known.append(",".join(described.block_labels))
    if described.confidence:
        settings["confidence"] = described.confidence
    manifest = PartManifest(
        name=name,
        kind="defense",
        type="object",
        version=identity.version,
        fingerprint=sha256("\n".join(known).encode()).hexdigest(),
        view=guard.capabilities.view.value,
        threshold=threshold,
        settings=settings,
    )
    return BuiltPart(part=guard, manifest=manifest)
