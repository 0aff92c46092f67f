"""The verbs of `guardmark data`, and what a person names for them on the command line."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.parts.loading import load_config, load_data
from guardmark.app.settings import StatsSettings
from guardmark.config.mistakes import checked_settings
from guardmark.config.source import Source
from guardmark.core.errors import ConfigError, DatasetError, did_you_mean, listed
from guardmark.core.sample import DEFAULT_TAXONOMY, Label
from guardmark.core.values import dataclass
from guardmark.datasets.builtin import BUILTIN_SETS, builtin_specs
from guardmark.datasets.catalogue.settings import entry_names, find_entry, find_suite, suite_names
from guardmark.datasets.checks.duplicates import THRESHOLD, assign_parts, deduplicate, group_similar
from guardmark.datasets.checks.issues import Criteria, check_samples
from guardmark.datasets.checks.mix import mix_of, read_mix
from guardmark.datasets.formats.fields import SAMPLE_FIELDS, BadRows
from guardmark.datasets.formats.writing import write_samples, written_format
from guardmark.datasets.loading import LoadedData, load
from guardmark.datasets.pictures import as_picture
from guardmark.datasets.public_sets import fetch_missing
from guardmark.datasets.settings import SAID_OF, DataSettings
from guardmark.datasets.specs import dataset_specs
from guardmark.stats.rates.proportion import wilson_half_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from guardmark.core.sample import Sample, Taxonomy
    from guardmark.datasets.builtin import BuiltinSet
    from guardmark.datasets.catalogue.settings import CatalogueEntry, Suite
    from guardmark.datasets.checks.duplicates import Dropped
    from guardmark.datasets.checks.issues import DataCheck
    from guardmark.datasets.formats.fields import DatasetSpec


_MOST_NAMED: Final = 5  # categories in one warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that was written.

    Attributes:
        left_out: Samples that have no such variant.
    """

    path: str
    attacks: int
    benign: int
    groups: int
    inert_cells: int
    unlabelled: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDiff:
    """What two versions of data share; samples are matched by their content.

    Attributes:
        common: Distinct contents with the same label, which runs are compared on.
        refiled: Common, in another category or group.
    """

    common: int
    removed: tuple[str, ...]
    added: tuple[str, ...]
    relabelled: tuple[str, ...]
    refiled: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicated:
    """What deduplication wrote and what it left out."""

    written: Written
    dropped: tuple[Dropped, ...]


def list_builtin() -> dict[BuiltinSet, LoadedData]:
    """Return the data sets that ship with guardmark."""
    sets = {}
    for builtin in BUILTIN_SETS:
        sets[builtin] = load(builtin_specs(builtin.target), DEFAULT_TAXONOMY)
    return sets


def list_public() -> dict[str, CatalogueEntry | Suite]:
    """Return the suites and the public sets that a configuration can name."""
    public: dict[str, CatalogueEntry | Suite] = {}
    for name in suite_names():
        public[f"suite:{name}"] = find_suite(name)
    for name in entry_names():
        public[name] = find_entry(name)
    return public


def get_public(
    name: str, settings: Mapping[str, object], announce: Callable[[str], None]
) -> LoadedData:
    """Fetch public data, or copy them out of a folder, into the cache, and read them."""
    kind, _, rest = name.rpartition(":")
    origin = {"": "catalogue", "suite": "suite", "hub": "hub"}.get(kind)
    if origin is None:
        raise ConfigError(f"{name!r} names no public data.\nNext: guardmark data list")
    entry = checked_settings(DataSettings, {origin: rest, **settings}, Source(shown_as=name))
    fetch_missing(entry, Path(), announce, anew=True)
    kept = entry.model_copy(update={"from_": ""})
    try:
        return load(dataset_specs(kept, Path()), DEFAULT_TAXONOMY)
    except BadRows as error:
        # Of the catalogue nothing is stored that cannot be read; of a hub no columns are known.
        raise DatasetError(
            f"{name} is stored, but its columns are not named as guardmark names them.\n"
            "Name it in a configuration with map: {text: COLUMN, label: COLUMN}; `run` finds it."
        ) from error


def check_data(opened: OpenedData) -> DataCheck:
    """Ask of a data set what a careful reader would ask."""
    loaded = opened.loaded
    samples, manifests = list(loaded.samples()), loaded.manifests
    warnings = (*loaded.warnings, *_undeclared_warnings(opened))
    return check_samples(samples, opened.criteria, manifests=manifests, warnings=warnings)


def _undeclared_warnings(opened: OpenedData) -> Iterator[str]:
    """Say which categories a run would refuse, what they may be slips of, and what helps."""
    if not opened.undeclared:
        return
    known = DEFAULT_TAXONOMY
    names = []
    for name in opened.undeclared[:_MOST_NAMED]:
        hint = did_you_mean(name, known).strip()
        named = repr(name)
        if hint:
            named += f" ({hint[0].lower()}{hint[1:]})"
        names.append(named)
    more = len(opened.undeclared) - len(names)
    rest = ""
    if more:
        rest = f" and {more:,} more"
    yield (
        f"categories that are not declared: {', '.join(names)}{rest}. A run refuses them until "
        "they are declared (taxonomy: {extend: ...}) or, beside path:, open_categories: true "
        "takes any"
    )


def diff_data(first: LoadedData, second: LoadedData) -> DataDiff:
    """Compare two versions of data."""
    old = _by_content(first)
    new = _by_content(second)
    common = 0
    removed, relabelled, refiled = [], [], []
    for key, before in old.items():
        after = new.get(key)
        if after is None:
            removed.append(before.id)
        elif before.label is not after.label:
            relabelled.append(after.id)
        else:
            common += 1
            if (before.category, before.group) != (after.category, after.group):
                refiled.append(after.id)
    return DataDiff(
        common=common,
        removed=tuple(removed),
        added=tuple(sample.id for key, sample in new.items() if key not in old),
        relabelled=tuple(relabelled),
        refiled=tuple(refiled),
    )


def _by_content(data: LoadedData) -> dict[bytes, Sample]:
    return {sample.prompt.digest(): sample for sample in data.samples()}


def convert_data(
    opened: OpenedData, out: Path, *, group: bool = False, draw: bool = False, force: bool = False
) -> Written:
    """Write data in another format, near-duplicates in one group or texts drawn where asked for."""
    samples = list(opened.loaded.every_sample())
    if group:
        samples = group_similar(samples, threshold=opened.criteria.threshold)
    kept = samples
    if draw:
        kept = []
        for sample in samples:
            picture = as_picture(sample)
            if picture is not None:
                kept.append(picture)
    return replace(_write(kept, out, force=force), left_out=len(samples) - len(kept))


def deduplicate_data(
    opened: OpenedData, out: Path, *, within_groups: bool = False, force: bool = False
) -> Deduplicated:
    """Write data without samples that repeat an earlier one."""
    _check_free(out, force=force)
    samples = list(opened.loaded.every_sample())
    dropped = deduplicate(samples, threshold=opened.criteria.threshold, within_groups=within_groups)
    gone = {repeated.id for repeated in dropped}
    kept = [sample for sample in samples if sample.id not in gone]
    return Deduplicated(written=_write(kept, out, force=force), dropped=dropped)


def split_data(
    opened: OpenedData,
    shares: Mapping[str, float],
    folder: Path,
    *,
    kind: str = "jsonl",
    seed: int = 0,
    groups_only: bool = False,
    force: bool = False,
) -> tuple[Written, ...]:
    """Part data by group and write one file a part."""
    outs = {name: folder / f"{name}.{kind}" for name in shares}
    for out in outs.values():
        _check_free(out, force=force)
    threshold = None
    if not groups_only:
        threshold = opened.criteria.threshold
    samples = list(opened.loaded.every_sample())
    parts = assign_parts(samples, shares, seed=seed, threshold=threshold)
    kept: dict[str, list[Sample]] = {name: [] for name in outs}
    for sample, part in zip(samples, parts, strict=True):
        kept[part].append(sample)
    return tuple(_write(kept[name], out, force=force) for name, out in outs.items())


def _write(samples: Sequence[Sample], out: Path, *, force: bool) -> Written:
    """Write samples into a file, whose name says the format, and say what was written."""
    _check_free(out, force=force)
    inert = write_samples(samples, out)
    labels = Counter(sample.label for sample in samples)
    return Written(
        path=str(out),
        attacks=labels[Label.ATTACK],
        benign=labels[Label.BENIGN],
        unlabelled=labels[Label.UNLABELLED],
        groups=len({sample.lineage for sample in samples}),
        inert_cells=inert,
    )


def _check_free(out: Path, *, force: bool) -> None:
    written_format(out)
    if out.exists() and not force:
        raise ConfigError(f"{out} already exists.\nReplace it with --force, or name another file.")


_CONFIG_SUFFIXES = (".yaml", ".yml")
_HEAD = 4_096  # bytes of a YAML file in which its kind shows


def _is_config(target: str) -> bool:
    """Tell a configuration from a YAML list of rows, which begins with a hyphen or a bracket."""
    if not target.lower().endswith(_CONFIG_SUFFIXES):
        return False
    path = Path(target)
    if not path.is_file():
        return True
    with path.open("rb") as file:
        head = file.read(_HEAD).decode("utf-8-sig", "replace")
    for line in head.splitlines():
        content = line.strip()
        if content and not content.startswith(("#", "---")):
            return not content.startswith(("-", "["))
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """How files named on the command line are read; a configuration says so itself.

    Attributes:
        format: Format of the file; empty for the one its name says.
        encoding: Encoding of the text; empty for UTF-8.
        label: Label of samples that state none.
        label_field: Column that holds the label.
        version: Version of the data.
        map: Field of a sample to column of the file.
        filter: Column to the values that are kept.
        open_categories: Whether categories outside the taxonomy are accepted.
    """

    format: str = ""
    encoding: str = ""
    label: Label | None = None
    label_field: str = ""
    version: str = ""
    map: Mapping[str, str] = field(default_factory=dict)
    filter: Mapping[str, Sequence[object]] = field(default_factory=dict)
    open_categories: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedData:
    """Validated data and what it is held against.

    Attributes:
        undeclared: Categories of attacks that a run would refuse.
    """

    shown_as: str
    loaded: LoadedData
    criteria: Criteria
    undeclared: tuple[str, ...] = ()


def open_to_check(
    targets: Sequence[str], options: FileOptions, *, threshold: float = THRESHOLD
) -> OpenedData:
    """Read data to say what is in them: files take any category, and those unknown are named."""
    if options.open_categories or any(map(_says_how_it_is_read, targets)):
        return open_data(targets, options, threshold=threshold)
    opened = open_data(targets, replace(options, open_categories=True), threshold=threshold)
    undeclared = tuple(name for name in opened.loaded.taxonomy if name not in DEFAULT_TAXONOMY)
    declared = replace(opened.criteria, taxonomy=DEFAULT_TAXONOMY)
    return replace(opened, undeclared=undeclared, criteria=declared)


def _says_how_it_is_read(target: str) -> bool:
    """Tell a configuration, or data that are known by name, from a file of rows."""
    return target.partition(":")[0] in SAID_OF or _is_config(target)


def open_data(
    targets: Sequence[str], options: FileOptions, *, threshold: float = THRESHOLD
) -> OpenedData:
    """Read and validate what a person named."""
    configs = [target for target in targets if _is_config(target)]
    if configs and len(targets) > 1:
        raise ConfigError("Name either one configuration or data files, not both.")
    _check_options(targets, options)
    if configs:
        config = load_config(Path(configs[0]))
        loaded, stats = load_data(config), config.config.stats
    else:
        specs: list[DatasetSpec] = []
        for target in targets:
            specs.extend(data_specs(target, options))
        loaded, stats = load(specs, DEFAULT_TAXONOMY), StatsSettings()
    criteria = _criteria(loaded.taxonomy, threshold, stats)
    return OpenedData(shown_as=", ".join(targets), loaded=loaded, criteria=criteria)


def hold_against(opened: OpenedData, reference: str) -> OpenedData:
    """Take the shares of a reference, such as a log, for those of the deployment."""
    mix = mix_of(list(open_data([reference], FileOptions()).loaded.samples()))
    return replace(opened, criteria=replace(opened.criteria, mix=read_mix(mix)))


def _check_options(targets: Sequence[str], options: FileOptions) -> None:
    """Refuse options that would be ignored in silence."""
    fixed = [target for target in targets if _says_how_it_is_read(target)]
    if fixed and options != FileOptions():
        raise ConfigError(
            f"{fixed[0]} already says how its rows are read; the options for files do not apply.\n"
            "Leave out --format, --encoding, --label, --label-field, --map, --filter, "
            "--set-version and --open-categories."
        )


def data_specs(target: str, options: FileOptions) -> tuple[DatasetSpec, ...]:
    """Return how the files of a target are read: a path, or `builtin:`, `catalogue:`, `suite:`."""
    origin, _, name = target.partition(":")
    if origin in SAID_OF:
        settings = checked_settings(DataSettings, {origin: name}, Source(shown_as=target))
        return dataset_specs(settings, Path())
    for name in options.map:
        if name not in SAMPLE_FIELDS:
            hint = did_you_mean(name, SAMPLE_FIELDS)
            raise ConfigError(
                f"--map: a sample has no field {name!r}.{hint} Known: {listed(SAMPLE_FIELDS)}."
            )
    stated: dict[str, Any] = {}
    for option in fields(options):
        value = getattr(options, option.name)
        if value:
            stated[option.name] = value
    stated["filter"] = {path: list(values) for path, values in options.filter.items()}
    stated["path"] = target
    return dataset_specs(checked_settings(DataSettings, stated, Source(shown_as=target)), Path())


def _criteria(taxonomy: Taxonomy, threshold: float, stats: StatsSettings) -> Criteria:
    """Return what data are held against; a threshold out of range is refused."""
    if not 0 < threshold <= 1:
        raise ConfigError(f"The threshold must be above 0 and at most 1, got {threshold:g}.")
    return Criteria(
        taxonomy=taxonomy,
        half_width=partial(wilson_half_width, 0.5, confidence=stats.confidence),
        confidence=stats.confidence,
        min_per_category=stats.min_per_category,
        threshold=threshold,
        mix=read_mix(stats.deployment_mix),
    )
