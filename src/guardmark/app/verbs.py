"""The public verbs of `import guardmark`, for notebooks and scripts."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
import warnings
import weakref
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from guardmark.app.loaded_run import LoadedRun, load_run
from guardmark.app.measuring import measure
from guardmark.app.parts.loading import load_config
from guardmark.app.planning import USUAL_ICC, Claim, SizePlan, layout_of, plan_size
from guardmark.app.python_subjects import (
    DefenseStatements,
    config_of_objects,
    entry_of,
)
from guardmark.app.python_words import python_words
from guardmark.app.results.opened_run import find_run, open_run
from guardmark.app.results.reporting import finish
from guardmark.app.run.progress_line import ProgressLine, is_notebook
from guardmark.app.run.running import RunOptions, Session, run_parts
from guardmark.app.settings import GateSettings
from guardmark.config.mistakes import checked_settings
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError, did_you_mean
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.core.values import dataclass
from guardmark.datasets.builtin import DEFAULT_SET
from guardmark.datasets.loading import LoadedData, load
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs
from guardmark.defenses.answers import AssumedThreshold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from guardmark.analysis.compare.comparison import RunComparison
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.preflight import Checkup
    from guardmark.app.python_subjects import RowSource
    from guardmark.app.results.gating import Gated
    from guardmark.core.protocols import Attack, Defense
    from guardmark.core.sample import Sample
    from guardmark.defenses.answers import ConfidenceMeaning
    from guardmark.engine.plan import Parts


def load_dataset(source: str | Path, **settings: Any) -> LoadedData:
    """Read and validate a data set.

    Args:
        source: Name of a built-in set (`core@2`), or a file.
        **settings: As under `data:` in a configuration: `label`, `map`, `filter` ...

    Returns:
        The samples with their manifest; iterate over `.samples()`.

    Raises:
        ConfigError: If a setting is unknown or wrong.
        DatasetError: If a row cannot be used; every one is named.
    """
    given, called = {**entry_of(source), **settings}, Source(shown_as="load_dataset()")
    entry = checked_settings(DataSettings, given, called)
    return load(dataset_specs(entry, Path.cwd()), DEFAULT_TAXONOMY)


def run(  # noqa: PLR0913 - the options of the command line, by keyword
    subject: str | Path | Defense | Callable[[str], object] | Mapping[str, object] | object,
    data: str | Path | Iterable[object] | RowSource = DEFAULT_SET,
    *,
    name: str = "",
    threshold: float | None = None,
    confidence: ConfidenceMeaning | None = None,
    version: str = "",
    config: object = None,
    block_labels: Sequence[str] = (),
    attacks: Sequence[Attack | Callable[[str], str]] = (),
    limit: int | None = None,
    repeats: int | None = None,
    seed: int | None = None,
    concurrency: int | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    retry_errors: bool = False,
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
            data frame, a Hugging Face data set. Rows are kept in the folder of the run. Not used
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
        attacks: Own rewritings, each a function from text to text or an `Attack`. Every attack
            sample is asked as it is and as each of them rewrites it, in one group.
        limit: Measure so many attacks and benign samples in all, evenly drawn; a first look.
        repeats: How often each sample is asked; 1 if not given.
        seed: Of every draw; 7 if not given.
        concurrency: Samples under way at once; 16 if not given.
        out: Folder of the run. Without one nothing is kept: the run lies in a temporary folder
            that goes when nothing refers to the result any more, and at the end of the program.
        fresh: Set an earlier run in `out` aside instead of continuing it.
        retry_errors: Ask again about what failed in an earlier run in `out`.
        **settings: How data is read, as under `data:` in a configuration: `map`, `label` ...

    Returns:
        The finished run.

    Raises:
        GuardmarkError: As the command line would; its message says what to do.
    """
    stated = {"repeats": repeats, "seed": seed, "concurrency": concurrency}
    how = {key: value for key, value in stated.items() if value is not None}
    assumed = AssumedThreshold()
    _require_known(run, settings)
    with python_words(run), run_folder(out) as folder:
        options = RunOptions(out=folder, limit=limit, fresh=fresh, retry_errors=retry_errors)
        if isinstance(subject, str | Path):
            _require_no_settings(subject, how)
            loaded, parts = load_config(Path(subject)), None
        else:
            statements = DefenseStatements(
                name=name,
                threshold=threshold,
                confidence=confidence,
                version=version,
                config=config,
                block_labels=_labels(block_labels),
                assumed=assumed,
            )
            loaded, parts = config_of_objects(
                subject,
                data,
                statements,
                folder=folder,
                run_settings=how,
                data_settings=settings,
                attacks=attacks,
            )
        measured = _measured(loaded, parts, options)
        if out is None:
            remove_when_unused(measured.run, folder)
    if assumed.is_used:
        value = f"{assumed.value:g}"
        said = f"No threshold was stated: scores block from {value} on (threshold={value})."
        warnings.warn(said, stacklevel=2)
    for note in measured.notes:
        warnings.warn(note, stacklevel=2)
    return measured.run


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
    first: bool = False,
    **limits: Any,
) -> Gated:
    """Check a run against limits, as `guardmark gate` does; nothing is called.

    Args:
        path: The run, or its folder.
        policy: File with the limits; the run's own section `gate` if neither is given.
        baseline: Run of the release that is out, for `regression_margin`.
        first: Nothing is out yet: `regression_margin` is not judged, and `.caveats` say so.
        **limits: Limits as under `gate:` in a configuration: `asr_upper=0.2, fpr_upper=0.1`.

    Returns:
        The answer: `.result.standing` is held, broken or open, `.result.checks` has each limit.

    Raises:
        ConfigError: If a limit is unknown or wrong, or nothing is limited.
    """
    from guardmark.app.results.gating import check_run, gate_policy
    from guardmark.app.results.gating import gate as check_gate

    base = None
    if baseline is not None:
        base = Path(baseline)
    with python_words(gate):
        if not limits:
            named = None
            if policy:
                named = Path(policy)
            return check_gate(Path(path), policy=named, baseline=base, is_first=first)
        if policy is not None:
            raise ConfigError("Limits are given by policy= or by name, not both.")
        stated = checked_settings(GateSettings, limits, Source(shown_as="gate()"))
        with open_run(Path(path)) as opened:
            found = None
            if base is not None:
                found = find_run(base)
            return check_run(opened, gate_policy(stated), baseline=found, is_first=first)


def export(path: str | PathLike[str], form: str, *, out: str | Path | None = None) -> Path:
    """Write the records of a run in another form, as `guardmark export` does.

    Args:
        path: The run, or its folder.
        form: `csv`, `jsonl`, `parquet`, `latex`, `inspect`, `promptfoo` ...
        out: Where to; its usual name inside the run's folder if not given.

    Returns:
        The file or the folder that was written.
    """
    from guardmark.app.results.exporting import export as write_export

    with python_words(export):
        return write_export(Path(path), form, out=_path_or_none(out)).path


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
    with python_words(import_run):
        taken = take_over(
            tool, Path(path), now=Session().now, out=_path_or_none(out), statements=stated
        )
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


def adapt(  # noqa: PLR0913 - the options of the command line, by keyword
    subject: str | PathLike[str] | Callable[[str], object] | Mapping[str, object] | object,
    data: str | Path | Iterable[object] | RowSource = DEFAULT_SET,
    *,
    budget: int | str = "standard",
    only: str | Sequence[str] = (),
    operators: Sequence[Attack | Callable[[str], str]] = (),
    has_repair: bool = True,
    has_controls: bool = True,
    seeds: int | None = None,
    config: str | Path | None = None,
    name: str = "",
    threshold: float | None = None,
    block_labels: Sequence[str] = (),
    yes: bool = False,
    out: str | Path | None = None,
    **settings: Any,
) -> LoadedRun:
    """Attack defenses by rewriting attacks and watching the answers, as `guardmark adapt` does.

    Only attack a defense that is yours or that you may test.

    Args:
        subject: A finished run or its folder, which the tries are added to; a configuration file,
            or a defense as `run` takes it, which is measured first.
        data: What a defense is measured on, as `run` takes it.
        budget: Search calls for each attack: a number of at least 4, or `quick` (16), `standard`
            (64), `thorough` (512).
        only: Names of the defenses to attack; all candidates if not given.
        operators: Own rewritings, each a function from text to text or an `Attack`, tried beside
            the built-in ones.
        has_repair: Whether a repair is looked for, and attacked again.
        has_controls: Whether control arms and benign texts are asked, which tell what learning
            added and what blocking a trick would cost.
        seeds: Searches with so many seeds; 1 if not given.
        config: Configuration of a finished run, whose parts call code or services, or a file of an
            attacker model.
        name: Name of the one defense in reports.
        threshold: As `run` takes it.
        block_labels: As `run` takes it.
        yes: Make more than 10,000 calls of services without a limit.
        out: Folder of a run that is measured first; nothing is kept without one.
        **settings: How data is read.

    Returns:
        The run, its adaptive figures at `.analysis.adaptive`.

    Raises:
        GuardmarkError: As the command line would; its message says what to do.
    """
    from guardmark.app.adapt.adapting import AdaptOptions, BuiltSubject, parse_budget
    from guardmark.app.adapt.arms import adapt_any as attack
    from guardmark.app.adapt.own_operators import own_operators
    from guardmark.app.results.reporting import report as write_report

    _require_known(adapt, settings)
    with python_words(adapt), run_folder(out) as folder:
        options = AdaptOptions(
            budget=parse_budget(str(budget)),
            config=_path_or_none(config),
            seeds=seeds,
            only=_labels(only),
            has_repair=has_repair,
            has_controls=has_controls,
            operators=own_operators(operators),
            forecast=_agreed if yes else _refuse_many_calls,
            run=RunOptions(out=folder, only=_labels(only)),
        )
        is_finished = isinstance(subject, LoadedRun)
        what: Any
        if isinstance(subject, LoadedRun):
            what = subject.folder
        elif isinstance(subject, str | Path):
            is_config = Path(subject).suffix in {".yaml", ".yml"}
            what = load_config(Path(subject)) if is_config else Path(subject)
            is_finished = not is_config
        else:
            statements = DefenseStatements(
                name=name,
                threshold=threshold,
                block_labels=_labels(block_labels),
                assumed=AssumedThreshold(),
            )
            loaded, parts = config_of_objects(
                subject, data, statements, folder=folder, run_settings={}, data_settings=settings
            )
            what = BuiltSubject(loaded=loaded, parts=parts)
        session = Session()
        with _progress_line(session, is_attack=True):
            done = attack(what, session, options)
        write_report(done.folder.path)
        attacked = load_run(done.folder.path)
        if out is None and not is_finished:
            remove_when_unused(attacked, folder)
        return attacked


def judge(
    path: str | PathLike[str],
    *,
    config: str | Path | None = None,
    human_labels: str | Path | None = None,
    layer: str = "",
) -> LoadedRun:
    """Judge the stored answers of a run again, as `guardmark judge` does.

    Args:
        path: The run, or its folder.
        config: File with the judges, under `judges:` or as a whole configuration.
        human_labels: A sheet that people filled in (`guardmark audit`).
        layer: Name of the judging.

    Returns:
        The run, with every figure, its new judging beside the earlier ones.

    Raises:
        GuardmarkError: As the command line would; its message says what to do.
    """
    from guardmark.app.judging_choice import choose_headline
    from guardmark.app.labels.judging import judge_run
    from guardmark.app.results.reporting import report as write_report

    session = Session()
    with python_words(judge), _progress_line(session):
        judged = judge_run(
            Path(path),
            session,
            config=_path_or_none(config),
            layer=layer,
            human_labels=_path_or_none(human_labels),
        )
        if judged.headline:
            with judged.folder.lock():
                choose_headline(judged.folder.records, judged.headline)
        write_report(judged.folder.path)
    for warning in judged.warnings:
        warnings.warn(warning, stacklevel=2)
    return load_run(judged.folder.path)


def plan(  # noqa: PLR0913 - the options of the command line, by keyword
    *,
    margin: float | None = None,
    zero_events: float | None = None,
    difference: float | None = None,
    non_inferiority: float | None = None,
    rate: float | None = None,
    discordance: float | None = None,
    power: float | None = None,
    confidence: float = 0.95,
    tests: int = 2,
    variants: int | str | None = None,
    icc: float = USUAL_ICC,
    like: str | PathLike[str] | None = None,
) -> SizePlan:
    """Say how many samples a claim needs, as `guardmark plan` does.

    Args:
        margin: A rate known to within this share, half the width of its interval.
        zero_events: An upper limit that no event at all is to keep.
        difference: A difference between two defenses that is to be found.
        non_inferiority: How much worse the second may be at most.
        rate: The true rate that is assumed.
        discordance: The share of samples on which two defenses differ.
        power: The chance that the claim comes out; the usual one of the claim if not given.
        confidence: Of the interval, or one less the error of the test.
        tests: How many tests share the error.
        variants: Variants of each wording, `5` or a range such as `1-9`; none if not given.
        icc: How alike variants of one wording are, from 0 to 1.
        like: A run whose groups are taken in the place of `variants` and `icc`.

    Returns:
        The plan: `.claim`, `.assumption`, and `.promise` with its rows and groups.

    Raises:
        ConfigError: If there is not exactly one claim, or it cannot be planned.
    """
    claim = Claim(
        margin=margin,
        zero_events=zero_events,
        difference=difference,
        non_inferiority=non_inferiority,
        rate=rate,
        discordance=discordance,
        power=power,
        confidence=confidence,
        tests=tests,
    )
    with python_words(plan):
        if like is None:
            layout = layout_of(None if variants is None else str(variants), icc)
        else:
            from guardmark.app.results.group_layout import read_layout

            layout = read_layout(Path(like), is_attack=non_inferiority is None)
        return plan_size(claim, layout)


def check(config: str | Path, *, probes: int = 0) -> Checkup:
    """Check a configuration before it is run, as `guardmark check` does.

    Args:
        config: The configuration file.
        probes: How many samples each defense behind a service is asked about.

    Returns:
        Data, sizes, calls, time and cost, and what the probes showed.

    Raises:
        GuardmarkError: If something is wrong; every mistake is named with its place.
    """
    from guardmark.app.preflight import check_config

    with python_words(check):
        return check_config(Path(config), probes=probes)


@contextmanager
def run_folder(out: str | Path | None) -> Iterator[Path]:
    """Name the folder of a run: the one that is wanted, or a temporary one.

    After an error nothing of a folder stays that was not there before and holds no records.
    """
    if out is not None:
        folder, home = Path(out), Path(out)
    else:
        home = Path(tempfile.mkdtemp(prefix="guardmark-"))
        folder = home / "run"
    is_new = out is None or not folder.exists()
    try:
        yield folder
    except BaseException:
        if out is None or (is_new and not (folder / "records.sqlite").exists()):
            shutil.rmtree(home, ignore_errors=True)
        raise


def remove_when_unused(result: LoadedRun, folder: Path) -> None:
    """Remove a temporary folder when nothing refers to its run any more, or at the end."""
    weakref.finalize(result, shutil.rmtree, folder.parent, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A run, and what deserves a warning."""

    run: LoadedRun
    notes: tuple[str, ...]


def _measured(loaded: LoadedConfig, parts: Parts | None, options: RunOptions) -> _Measured:
    """Carry out a run, write its reports and read it back."""
    session = Session()
    with _progress_line(session):
        if parts is None:
            result = measure(loaded, options, session)
        else:
            result = run_parts(loaded, parts, services=None, options=options, session=session)
    finished = finish(result.folder, loaded.config, formats=loaded.config.report)
    notes = (*result.warnings, *result.summary.notes, *finished.notes, *finished.complaints)
    return _Measured(run=load_run(result.folder.path), notes=notes)


def _progress_line(session: Session, *, is_attack: bool = False) -> ProgressLine:
    """Show progress where it is seen: at a terminal, in a notebook, in a log of CI."""
    is_seen = sys.stderr.isatty() or is_notebook() or bool(os.environ.get("CI"))
    return ProgressLine(
        session.progress, quiet=not is_seen, is_attack=is_attack, meter=session.meter
    )


def _require_known(verb: Callable[..., object], settings: Mapping[str, object]) -> None:
    """Refuse arguments that are neither of a verb nor of data."""
    fields = DataSettings.model_fields
    of_data = {field.alias or name for name, field in fields.items()} | set(fields)
    known = [*inspect.signature(verb).parameters, *of_data]
    for name in settings:
        if name not in of_data:
            hint = did_you_mean(name, known)
            raise ConfigError(f"{verb.__name__}(): no setting is called {name!r}.{hint}")


def _require_no_settings(config: str | Path, how: Mapping[str, int]) -> None:
    """Refuse arguments that a configuration states itself."""
    if how:
        raise ConfigError(
            f"A configuration states {', '.join(how)} itself.\n"
            f"Next: write `run: {{{next(iter(how))}: ...}}` in {config}."
        )


def _agreed(*_: object) -> None:
    """Make every call: the caller said yes."""


def _refuse_many_calls(_loaded: LoadedConfig, forecast: Any, _samples: Sequence[Sample]) -> None:
    if forecast.needs_consent:
        raise ConfigError(
            f"At most about {forecast.outside:,} calls of services, without a limit.\n"
            "Next: state run.max_calls or run.max_cost, take a smaller --budget, or give --yes."
        )


def _path_or_none(stated: str | Path | None) -> Path | None:
    if stated is None:
        return None
    return Path(stated)


def _labels(stated: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(stated, str):
        return (stated,)
    return tuple(stated)
