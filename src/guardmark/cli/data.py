"""`guardmark data`: list, check, describe, split, deduplicate, convert and hash data sets."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import click

from guardmark.cli.label import label_command
from guardmark.cli.terminal import drawn, echo, echo_json, one_line
from guardmark.core.errors import ConfigError, UnknownName, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from guardmark.app.data import Deduplicated, OpenedData, Written
    from guardmark.datasets.builtin import BuiltinSet
    from guardmark.datasets.checks.issues import DataCheck
    from guardmark.datasets.loading import LoadedData


_FOUND_PROBLEMS = 3
_TRUTH: dict[str, object] = {"true": True, "false": False, "null": None}
_KIND_BEGINNING_WITH = {b"[": "json", b"{": "jsonl"}
"""Which format piped data are in, by their first character; others are CSV."""


if TYPE_CHECKING:
    _WordType = click.ParamType[str]
else:  # generic for type checkers alone: the lowest click promised cannot be subscripted
    _WordType = click.ParamType


class _Format(_WordType):
    """A format of data by name, or a mapping of one's own in a .toml file."""

    name = "FORMAT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format; an unknown one is refused, with a list of those there are."""
        from guardmark.datasets.settings import known_format

        try:
            return known_format(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_FORMATS = _Format()
_READING = (
    click.argument("data", nargs=-1, required=True),
    click.option(
        "--format",
        "kind",
        type=_FORMATS,
        help=(
            "Format of the files; default: by their names. One of jsonl, json, csv, tsv, parquet, "
            "prompt_pack, croissant; langfuse, mlflow, phoenix (their exports); or a mapping of "
            "your own (.toml)."
        ),
    ),
    click.option(
        "--encoding",
        default="",
        help="Encoding of the files where it is not UTF-8, such as cp1252 or utf-16.",
    ),
    click.option(
        "--label", type=click.Choice(["attack", "benign"]), help="Label of every row of the files."
    ),
    click.option(
        "--label-field", default="", help="Column that holds the label, as a dotted path."
    ),
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="FIELD=PATH",
        help="Which column holds a field, such as text=prompt.",
    ),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar="PATH=A,B",
        help="Only rows with this value; may be given more than once.",
    ),
    click.option("--set-version", default="", help="Version of the data, as reports show it."),
    click.option(
        "--open-categories", is_flag=True, help="Accept categories that are not declared."
    ),
    click.option(
        "--threshold",
        default=0.5,
        show_default=True,
        help="Similarity at which two texts are near-duplicates, above 0 and at most 1.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)
"""The argument and the options of every command that reads data."""

_FORCE = click.option("--force", is_flag=True, help="Replace files that exist.")


@click.group(help=("List, check, describe, split, deduplicate, convert, label and hash data sets."))
def data_command() -> None:
    """Hold the commands."""


data_command.add_command(label_command)


def _reads_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument and the options of everything that reads data."""
    for decorate in reversed(_READING):
        function = decorate(function)
    return function


@data_command.command("list", help="List built-in data, suites and the catalogue of public sets.")
@click.option("--purpose", default="", help="Only public sets for detectors of this purpose.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _list(*, purpose: str, as_json: bool) -> None:
    from guardmark.app.data import list_builtin, list_public
    from guardmark.datasets.catalogue.settings import Purpose

    entries = []
    if not purpose:
        for known, loaded in list_builtin().items():
            entries.append(_builtin(known, loaded))
    public = {}
    for name, entry in list_public().items():
        stated = entry.model_dump(mode="json")
        if not purpose or purpose in stated["purposes"]:
            public[name] = stated
    if purpose and not public:
        raise UnknownName("purpose", purpose, get_args(Purpose))
    document = list(entries)
    for name, stated in public.items():
        document.append({"name": name, **stated})
    _say([*builtin_lines(entries), *public_lines(public)], document, as_json=as_json)


def _builtin(known: BuiltinSet, loaded: LoadedData) -> dict[str, Any]:
    """Return what is listed of a built-in set."""
    from guardmark.datasets.settings import data_sha256

    attacks = sum(manifest.attacks for manifest in loaded.manifests)
    return {
        "name": known.target,
        "version": known.version,
        "purpose": known.purpose,
        "attacks": attacks,
        "benign": loaded.count - attacks,
        "sha256": data_sha256(loaded.manifests),
        "card": str(known.card),
    }


@data_command.command("show", help="Show what is known of a public set or of suite:NAME.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _show(*, name: str, as_json: bool) -> None:
    from guardmark.datasets.catalogue.settings import find_entry, find_suite

    entry: BaseModel
    if name.startswith("suite:"):
        entry = find_suite(name.removeprefix("suite:"))
    else:
        entry = find_entry(name)
    known = entry.model_dump(mode="json", exclude_defaults=True)
    _say(entry_lines(name, known), known, as_json=as_json)


@data_command.command(
    "get", help="Fetch public data into the cache: NAME, suite:NAME or hub:OWNER/NAME."
)
@click.argument("name")
@click.option("--from", "from_", default="", help="Folder or file of a local copy to read instead.")
@click.option("--revision", default="", help="Another revision than the entry names.")
@click.option("--subset", default="", help="Subset, of data from a hub.")
@click.option("--split", default="", help="Split, of data from a hub.")
@click.option("--path", default="", help="Pattern of the files, of data from a hub.")
@click.option(
    "--use",
    type=click.Choice(["commercial", "redistribution", "training"]),
    help="What you want to use the data for; refused where the licence forbids it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _get(*, name: str, from_: str, as_json: bool, **stated: str | None) -> None:
    from guardmark.app.data import get_public
    from guardmark.datasets.settings import data_sha256

    settings = {key: value for key, value in {"from": from_, **stated}.items() if value}
    loaded = get_public(name, settings, lambda line: echo(line, err=True))
    digest = data_sha256(loaded.manifests)
    manifests = [asdict(manifest) for manifest in loaded.manifests]
    _say(hash_lines(loaded, digest), {"sha256": digest, "manifests": manifests}, as_json=as_json)


@data_command.command(
    "check",
    epilog="Exit code 3 when a finding is a problem; warnings leave it 0.",
    help=(
        "Check whether data can support conclusions. DATA names files, `builtin:`, "
        "`catalogue:` or `suite:NAME`, or one configuration (.yaml)."
    ),
)
@_reads_data
@click.option(
    "--reference",
    default="",
    help=(
        "Data like your traffic (a file, `builtin:`, `catalogue:`, a configuration): "
        "its shares of category, topic, language and length stand for the deployment."
    ),
)
def _check(*, reference: str, as_json: bool, **reading: Any) -> int:
    from guardmark.app.data import check_data, hold_against
    from guardmark.reports.chapters.data_sets import check_document

    opened = _opened(is_to_check=True, **reading)
    if reference:
        opened = hold_against(opened, reference)
    check = check_data(opened)
    lines, document = (
        drawn(check_document(check, opened.shown_as)).splitlines(),
        _check_json(check, opened),
    )
    if reference:
        stats = {"deployment_mix": document["deployment_mix"]}
        lines += ["", "To weigh a run like it, put this into its configuration:"]
        lines.append(f"stats: {json.dumps(stats, ensure_ascii=False)}")
    _say(lines, document, as_json=as_json)
    if check.has_problems:
        return _FOUND_PROBLEMS
    return 0


@data_command.command(
    "diff", help="Show how version B of data differs from A. A and B are named as DATA is."
)
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _diff(*, a: str, b: str, as_json: bool) -> None:
    from guardmark.app.data import FileOptions, diff_data, open_data

    before = open_data([a], FileOptions()).loaded
    after = open_data([b], FileOptions()).loaded
    changes = asdict(diff_data(before, after))
    _say(entry_lines(f"{a} against {b}", changes), changes, as_json=as_json)


@data_command.command(
    "stats",
    help=(
        "Count samples by category, language, length and other facets. DATA names "
        "files, `builtin:`, `catalogue:` or `suite:NAME`, or one configuration "
        "(.yaml)."
    ),
)
@_reads_data
def _stats(*, as_json: bool, **reading: Any) -> None:
    from guardmark.datasets.checks.census import take_census
    from guardmark.reports.chapters.data_sets import census_document

    opened = _opened(**reading)
    census, half_width = take_census(opened.loaded.samples()), opened.criteria.half_width
    document = census_document(census, half_width, shown_as=opened.shown_as)
    _say(drawn(document).splitlines(), asdict(census), as_json=as_json)


@data_command.command(
    "split",
    help=(
        "Split data so that no group and no near-duplicate is on both sides. DATA "
        "names files, `builtin:`, `catalogue:` or `suite:NAME`, or one configuration "
        "(.yaml)."
    ),
)
@_reads_data
@click.option(
    "--into",
    multiple=True,
    required=True,
    metavar="NAME=SHARE",
    help="A part and its share; give one for each part, adding to 1.",
)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder to write to."
)
@click.option(
    "--to",
    "target",
    type=click.Choice(["jsonl", "json", "csv", "tsv", "parquet"]),
    default="jsonl",
    show_default=True,
    help="Format to write.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the choice.")
@click.option("--groups-only", is_flag=True, help="Split by stated groups only.")
@_FORCE
def _split(*, into: tuple[str, ...], out: Path, target: str, as_json: bool, **options: Any) -> None:
    from guardmark.app.data import split_data

    choice = {name: options.pop(name) for name in ("seed", "groups_only", "force")}
    written = split_data(_opened(**options), _shares(into), out, kind=target, **choice)
    _say(written_lines(written), [asdict(each) for each in written], as_json=as_json)


@data_command.command(
    "dedup",
    help=(
        "Write data without samples that repeat an earlier one. DATA names files, "
        "`builtin:`, `catalogue:` or `suite:NAME`, or one configuration (.yaml)."
    ),
)
@_reads_data
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="File to write.")
@click.option("--within-groups", is_flag=True, help="Drop near-duplicates within a group as well.")
@_FORCE
def _dedup(*, out: Path, within_groups: bool, force: bool, as_json: bool, **reading: Any) -> None:
    from guardmark.app.data import deduplicate_data
    from guardmark.datasets.checks.duplicates import describe_method

    opened = _opened(**reading)
    done = deduplicate_data(opened, out, within_groups=within_groups, force=force)
    method = describe_method(opened.criteria.threshold)
    _say(deduplicated_lines(done, method), {**asdict(done), "method": method}, as_json=as_json)


@data_command.command(
    "convert", help="Write data in guardmark's form; the name of OUT decides the format."
)
@_reads_data
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="File to write.")
@click.option(
    "--group-families",
    "group",
    is_flag=True,
    help=(
        "Give near-duplicates of several groups one group, as `data check` proposes; "
        "each such sample says so (group_source)."
    ),
)
@click.option(
    "--pictures",
    "draw",
    is_flag=True,
    help=(
        "Draw the text of each sample, attack and benign alike, as a picture: a "
        "variant in its sample's group (needs guardmark[image])."
    ),
)
@_FORCE
def _convert(*, out: Path, as_json: bool, **options: Any) -> None:
    from guardmark.app.data import convert_data

    choice = {name: options.pop(name) for name in ("group", "draw", "force")}
    written = convert_data(_opened(**options), out, **choice)
    _say(written_lines([written]), asdict(written), as_json=as_json)


@data_command.command(
    "hash",
    help=(
        "Print the hashes by which a run names data. DATA names files, `builtin:`, "
        "`catalogue:` or `suite:NAME`, or one configuration (.yaml)."
    ),
)
@_reads_data
def _hash(*, as_json: bool, **reading: Any) -> None:
    from guardmark.datasets.settings import data_sha256

    loaded = _opened(**reading).loaded
    manifests = [asdict(manifest) for manifest in loaded.manifests]
    digest = data_sha256(loaded.manifests)
    document = {"name": loaded.name, "sha256": digest, "manifests": manifests}
    _say(hash_lines(loaded, digest), document, as_json=as_json)


@data_command.command(
    "croissant",
    help=(
        "Print the metadata of a data set as Croissant (JSON-LD), or write them beside its file: "
        "DATA is a file of data or `builtin:NAME`."
    ),
)
@click.argument("data")
@click.option("--format", "kind", type=_FORMATS, help="Format of the file; default: by its name.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="File to write; its folder is where the data have to lie.",
)
def _croissant(*, data: str, kind: str | None, out: Path | None) -> None:
    from guardmark.app.croissant import describe_dataset, write_metadata
    from guardmark.app.data import FileOptions

    document = describe_dataset(data, FileOptions(format=kind or ""))
    if out is None:
        echo_json(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        write_metadata(document, out)
        echo(f"Wrote {out}")


def _opened(
    *, data: tuple[str, ...], threshold: float, is_to_check: bool = False, **reading: Any
) -> OpenedData:
    """Open data as the options of a command say; `-` is standard input."""
    from guardmark.app.data import FileOptions, open_data, open_to_check
    from guardmark.config.source import STANDARD_INPUT
    from guardmark.core.sample import Label

    if STANDARD_INPUT in data:
        piped, targets = _piped(reading["kind"] or ""), list[str]()
        for target in data:
            if target == STANDARD_INPUT:
                targets.append(piped)
            else:
                targets.append(target)
        data = tuple(targets)
    label = None
    if reading["label"]:
        label = Label(reading["label"])
    filters = {}
    for path, words in _pairs("--filter", reading["filters"]).items():
        filters[path] = _values(words)
    options = FileOptions(
        format=reading["kind"] or "",
        encoding=reading["encoding"],
        label=label,
        label_field=reading["label_field"],
        version=reading["set_version"],
        map=_pairs("--map", reading["maps"]),
        filter=filters,
        open_categories=reading["open_categories"],
    )
    if is_to_check:
        return open_to_check(data, options, threshold=threshold)
    return open_data(data, options, threshold=threshold)


def _piped(kind: str) -> str:
    """Write what is piped in to a file that lives as long as the command, and return its path."""
    folder = TemporaryDirectory(prefix="guardmark-")
    click.get_current_context().call_on_close(folder.cleanup)
    content = sys.stdin.buffer.read()
    if not kind:
        kind = _KIND_BEGINNING_WITH.get(content.lstrip()[:1], "csv")
    path = Path(folder.name) / f"stdin.{kind}"
    path.write_bytes(content)
    return str(path)


def _pairs(option: str, words: tuple[str, ...]) -> dict[str, str]:
    """Read options of the form NAME=VALUE."""
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"{option}: expected NAME=VALUE, got {word!r}.")
        pairs[name] = value
    return pairs


def _values(words: str) -> tuple[object, ...]:
    """The values of a filter; `true`, `false` and `null` mean the word and the value."""
    values: list[object] = []
    for word in words.split(","):
        values.append(word)
        if word in _TRUTH:
            values.append(_TRUTH[word])
    return tuple(values)


def _shares(into: tuple[str, ...]) -> dict[str, float]:
    """Read parts and their shares of a split."""
    shares = {}
    for name, share in _pairs("--into", into).items():
        try:
            shares[name] = float(share)
        except ValueError:
            raise ConfigError(f"--into: {share!r} is not a share; write {name}=0.7.") from None
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"--into: {name!r} is to name a file: letters, digits, - and _.")
    return shares


def _check_json(check: DataCheck, opened: OpenedData) -> Mapping[str, object]:
    from guardmark.datasets.checks.duplicates import describe_method

    method = describe_method(check.duplicates.threshold)
    return {
        "data": opened.shown_as,
        "findings": [asdict(finding) for finding in check.findings],
        "deployment_mix": {each.name: dict(each.shares) for each in opened.criteria.mix},
        "duplicates": {**asdict(check.duplicates), "method": method},
        "census": asdict(check.census),
        "manifests": [asdict(manifest) for manifest in opened.loaded.manifests],
    }


def _say(lines: Iterable[str], document: object, *, as_json: bool) -> None:
    if as_json:
        echo_json(json.dumps(document, indent=2, ensure_ascii=False))
        return
    echo(*lines, styled=True)


_ROWS = 16


def hash_lines(loaded: LoadedData, digest: str) -> Iterator[str]:
    """Say by which hashes a run names the data."""
    yield f"{digest}  {loaded.name} (all, as in the manifest of a run)"
    for manifest in loaded.manifests:
        for name, file_hash in manifest.files.items():
            version = ""
            if manifest.version:
                version = f" version {manifest.version}"
            yield ""
            counts = f"{counted(manifest.attacks, 'attack')}, {manifest.benign:,} benign"
            yield f"Data {name}{version}: {counts}"
            yield f"  content  {manifest.sha256}"
            yield f"  file     {file_hash}  (for sha256: in a configuration)"


def builtin_lines(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """List the data sets that ship with guardmark."""
    for each in entries:
        name = click.style(f"builtin:{each['name']}", bold=True)
        counts = f"{counted(each['attacks'], 'attack')}, {each['benign']:,} benign"
        yield f"{name}  version {each['version']}  {counts}"
        yield from (f"    {each['purpose']}", f"    sha256 {each['sha256']}")
        yield f"    card   {each['card']}"


def public_lines(public: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """List public sets: what they are for, and their licence."""
    for name, known in public.items():
        licence = known.get("licence") or f"version {known['version']}"
        yield f"{click.style(name, bold=True)}  {', '.join(known['purposes'])}  ({licence})"
        yield f"    {known['title']}"


def entry_lines(name: str, known: Mapping[str, Any]) -> Iterator[str]:
    """Say all that is known but how rows are read; of long lists the first."""
    yield click.style(name, bold=True)
    for field, value in known.items():
        if field == "rows":
            continue
        parts: Sequence[Any] = [value]
        if isinstance(value, list | tuple):
            parts = value
        elif field == "codes":
            parts = [f"{framework}: {', '.join(codes)}" for framework, codes in value.items()]
        for part in parts[:_ROWS]:
            yield f"  {field:<12}{_entry_word(part)}"
        if len(parts) > _ROWS:
            yield f"  {field:<12}and {len(parts) - _ROWS:,} more (--json lists all)"


def _entry_word(part: Any) -> str:
    """Return a file by its path, a part of a suite by its quota, anything else as it is."""
    if not isinstance(part, dict):
        return str(part)
    return part.get("path") or f"{part['entry']}: {part['quota']}"


def written_lines(written: Sequence[Written]) -> Iterator[str]:
    """Say which files were written."""
    width = max(len(each.path) for each in written)
    for each in written:
        yield (
            f"Wrote {each.path:<{width}}  {counted(each.attacks, 'attack')}, {each.benign:,} "
            f"benign, {counted(each.groups, 'group')}"
        )
        if each.left_out:
            yield f"  {each.left_out:,} left out: longer than a picture, or not in Latin letters."
        if each.inert_cells:
            yield (
                f"  {counted(each.inert_cells, 'cell')} got an apostrophe that keeps spreadsheets "
                "from running formulas; guardmark takes it off again."
            )


def deduplicated_lines(done: Deduplicated, method: str) -> Iterator[str]:
    """Say which file was written and what was left out."""
    yield from written_lines([done.written])
    yield f"{counted(len(done.dropped), 'sample')} left out ({method})."
    for each in done.dropped[:_ROWS]:
        names = f"{one_line(each.id, 60)} repeats {one_line(each.kept, 60)}"
        yield f"  {names} ({each.similarity:.2f})"
    if len(done.dropped) > _ROWS:
        yield f"  and {len(done.dropped) - _ROWS:,} more (--json lists all)"
