"""Whether a data set can carry the conclusions drawn from it, one issue for each question."""

from __future__ import annotations

import tomllib
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.core.errors import counted
from guardmark.core.sample import USUAL_MINIMUM, minimum_of
from guardmark.core.values import dataclass
from guardmark.datasets.checks.census import UNSTATED, take_census
from guardmark.datasets.checks.crossed import crossed_line, find_crossed
from guardmark.datasets.checks.duplicates import THRESHOLD, describe_method, find_duplicates
from guardmark.datasets.checks.expectations import contradicts_label
from guardmark.datasets.checks.mix import effective_samples, mix_distances, mix_weights
from guardmark.datasets.checks.patterns import find_patterns, pattern_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.core.manifest import DataManifest
    from guardmark.core.sample import Sample, Taxonomy
    from guardmark.datasets.checks.census import Census, Count, Oddity
    from guardmark.datasets.checks.crossed import CrossedColumn
    from guardmark.datasets.checks.duplicates import Duplicates
    from guardmark.datasets.checks.mix import Dimension
    from guardmark.datasets.checks.patterns import Pattern


_WORDS = tomllib.loads(Path(__file__).with_name("aspects.toml").read_text(encoding="utf-8"))
SHOWN = 5  # most lines of one kind of detail; how many there are beside is said


class Status(StrEnum):
    """How a question was answered."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_ASSESSED = "not assessed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataIssue:
    """The answer to one question about a data set.

    Attributes:
        aspect: Which question it answers, as one word.
        status: How it was answered.
        message: The answer in sentences.
        details: Single cases, a line each.
        numbers: The figures behind the answer, by name.
    """

    aspect: str
    status: Status
    message: str
    details: tuple[str, ...] = ()
    numbers: Mapping[str, float | None] = field(default_factory=dict)


def some_of(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the first few lines, and how many there are beside."""
    if len(lines) <= SHOWN:
        return tuple(lines)
    return (*lines[:SHOWN], f"and {len(lines) - SHOWN:,} more")


def label_noun(value: str) -> str:
    """Return what the samples of a label are called; other words stay."""
    if value == "attack":
        return "attacks"
    return value


_FEW_GROUPS = 10
_FAR = 0.2
_LOPSIDED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What a data set is held against.

    Attributes:
        taxonomy: The categories that attacks may have, with their subcategories.
        half_width: Half the width that the interval of a rate has over so many samples.
        confidence: Coverage of that interval, in (0, 1).
        min_per_category: How many samples a category needs.
        threshold: The similarity from which texts count as near-duplicates.
        mix: The shares of the deployment; empty where the configuration states none.
    """

    taxonomy: Taxonomy
    half_width: Callable[[float], float]
    confidence: float = 0.95
    min_per_category: int = USUAL_MINIMUM
    threshold: float = THRESHOLD
    mix: tuple[Dimension, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheck:
    """Everything `guardmark data check` says of a data set.

    Attributes:
        census: What the data consist of.
        duplicates: What was found twice.
        findings: An answer to each question, in a fixed order.
    """

    census: Census
    duplicates: Duplicates
    findings: tuple[DataIssue, ...]

    @property
    def has_problems(self) -> bool:
        """Whether anything makes figures wrong rather than merely weak."""
        return any(finding.status is Status.PROBLEM for finding in self.findings)


def check_samples(
    samples: Sequence[Sample],
    criteria: Criteria,
    *,
    manifests: Sequence[DataManifest] = (),
    warnings: Sequence[str] = (),
) -> DataCheck:
    """Ask of a data set what a careful reader would ask."""
    census = take_census(samples)
    duplicates = find_duplicates(samples, threshold=criteria.threshold)
    inferred = 0
    against = []
    for sample in samples:
        inferred += str(sample.metadata.get("label_source", "")).startswith("inferred")
        if contradicts_label(sample):
            against.append(sample.id)
    return DataCheck(
        census=census,
        duplicates=duplicates,
        findings=(
            _labelled(census, duplicates, inferred, against),
            _categorised(census, criteria, warnings),
            _diverse(census, duplicates, find_patterns(samples), find_crossed(samples)),
            _representative(samples, criteria.mix),
            _versioned(manifests),
            _balanced(census, criteria),
            _readable(census),
        ),
    )


def _issue(
    aspect: str,
    numbers: Mapping[str, float | None],
    *,
    status: bool | Status,
    details: Sequence[str] = (),
    **more: object,
) -> DataIssue:
    """Write the answer of an aspect; a status that is true stands for a warning."""
    from jinja2 import Environment  # on use: most commands check no data

    template = Environment(autoescape=False).from_string(_WORDS[aspect])  # noqa: S701 - plain text
    message = template.render(numbers, n="{:,}".format, counted=counted, **more)
    if status is True:
        status = Status.WARNING
    elif status is False:
        status = Status.OK
    words = " ".join(message.split())
    return DataIssue(
        aspect=aspect, status=status, message=words, details=tuple(details), numbers=numbers
    )


def _labelled(
    census: Census, duplicates: Duplicates, inferred: int, against: Sequence[str]
) -> DataIssue:
    """Say whether the labels can be relied on."""
    attacks, benign = census.attacks.samples, census.benign.samples
    same = [conflict for conflict in duplicates.conflicts if conflict.is_same]
    near = [conflict for conflict in duplicates.conflicts if not conflict.is_same]
    pairs = []
    for conflict in (*same, *near):
        pair = f"{conflict.attack} (attack) and {conflict.benign} (benign)"
        pairs.append(f"{pair}: similarity {conflict.similarity:.2f}")
    numbers = {
        "attacks": attacks,
        "benign": benign,
        "inferred_labels": inferred,
        "against_expectation": len(against),
        "contradictions": len(same),
        "near_contradictions": len(near),
    }
    status = Status.OK
    if same or against:
        status = Status.PROBLEM
    elif near or inferred or not attacks or not benign:
        status = Status.WARNING
    return _issue("labelled", numbers, status=status, details=some_of(pairs), against=against)


def _categorised(census: Census, criteria: Criteria, warnings: Sequence[str]) -> DataIssue:
    """Say which categories of the taxonomy hold no attacks, and how many attacks state none."""
    without_category = _unstated(census.categories)
    without_severity = _unstated(census.severities)
    present = {count.value for count in census.categories}
    present_below = {count.value for count in census.subcategories}
    empty = []
    gaps = []
    for category, subcategories in criteria.taxonomy.items():
        if category not in present:
            empty.append(category)
            continue
        for subcategory in subcategories:
            name = f"{category}/{subcategory}"
            if name not in present_below:
                gaps.append(name)
    declared = len(criteria.taxonomy)
    numbers = {
        "categories": declared - len(empty),
        "declared_categories": declared,
        "empty_categories": len(empty),
        "empty_subcategories": len(gaps),
        "without_category": without_category,
        "without_severity": without_severity,
    }
    has_gaps = bool(empty or gaps or without_category or without_severity or warnings)
    is_weak = has_gaps and census.attacks.samples > 0
    details = (*some_of([f"no attacks in {name}" for name in gaps]), *warnings)
    return _issue("categorised", numbers, status=is_weak, details=details, empty=empty)


def _unstated(counts: Sequence[Count]) -> int:
    """Count the samples that state no value of a facet."""
    return sum(count.samples for count in counts if count.value == UNSTATED)


def _stated_values(counts: Sequence[Count]) -> int:
    """Count the values of a facet that samples state."""
    return sum(count.value != UNSTATED for count in counts)


def _diverse(
    census: Census,
    duplicates: Duplicates,
    patterns: Sequence[Pattern],
    crossed: Sequence[CrossedColumn],
) -> DataIssue:
    """Say which samples count as independent and are not."""
    families = duplicates.families
    lines = []
    for family in families:
        names = ", ".join(family.ids[:SHOWN])
        if len(family.ids) > SHOWN:
            names += " ..."
        lines.append(f"{len(family.ids)} near-duplicates in {family.groups} groups: {names}")
    method = f"near-duplicates: {describe_method(duplicates.threshold)}"
    kinds = "text only: no images, sound or files"
    if census.images:
        kinds = f"{counted(census.images, 'sample')} with images; no sound or files"
    made = [pattern_line(pattern) for pattern in patterns]
    made += [crossed_line(column) for column in crossed]
    details = (*some_of(made), *some_of(lines), method, f"{kinds}, whatever the samples speak of")
    numbers = {
        "groups": census.total.groups,
        "largest_group": census.total.largest_group,
        "languages": _stated_values(census.languages),
        "copies": duplicates.copies,
        "rewordings": duplicates.rewordings,
        "near_duplicate_families": len(families),
        "surplus_groups": duplicates.surplus_groups,
        "patterns": len(patterns),
        "samples_of_patterns": sum(len(pattern.ids) for pattern in patterns),
        "threshold": duplicates.threshold,
        "crossed_columns": len(crossed),
    }
    fewer = [column for column in crossed if column.has_fewer]
    more = {
        "crossed": crossed,
        "fewer": next(iter(fewer), None),
        "techniques": _stated_values(census.techniques),
        "lengths": census.lengths,
    }
    is_weak = bool(duplicates.copies + duplicates.rewordings or families or patterns or crossed)
    return _issue("diverse", numbers, status=is_weak, details=details, **more)


def _representative(samples: Sequence[Sample], mix: tuple[Dimension, ...]) -> DataIssue:
    """Say how far the samples are from the deployment that the configuration states."""
    if not mix:
        return _issue("representative", {}, status=Status.NOT_ASSESSED)
    worst: float | None = None
    absent_share = 0.0
    details = []
    for distance in mix_distances(samples, mix):
        worst = max(worst or 0.0, distance.total_variation)
        absent_share = max(absent_share, distance.absent_share)
        line = (
            f"{distance.dimension} of {label_noun(distance.label.value)}: "
            f"distance {distance.total_variation:.2f}"
        )
        if distance.absent:
            line += f"; nothing for {', '.join(distance.absent)} ({distance.absent_share:.0%})"
        details.append(line)
    numbers = {
        "largest_total_variation": worst,
        "largest_absent_share": absent_share,
        "effective_samples": effective_samples(mix_weights(samples, mix)),
    }
    is_far = (worst is not None and worst > _FAR) or absent_share > 0
    return _issue(
        "representative", numbers, status=is_far, details=details, mix=mix, samples=len(samples)
    )


def _versioned(manifests: Sequence[DataManifest]) -> DataIssue:
    """Say which data sets state no version."""
    unversioned: set[str] = set()
    versions: dict[str, None] = {}  # each once, in the order in which they come
    details = []
    for manifest in manifests:
        versions[f"{manifest.name} {manifest.version}"] = None
        if not manifest.attacks + manifest.benign:
            continue
        if not manifest.version:
            unversioned.add(manifest.name)
        for name in manifest.files:
            details.append(f"{name}: content hash {manifest.sha256[:16]}")
    return _issue(
        "versioned",
        {"without_version": len(unversioned)},
        status=bool(unversioned),
        details=some_of(details),
        unversioned=sorted(unversioned),
        versions=versions,
    )


def _balanced(census: Census, criteria: Criteria) -> DataIssue:
    """Say how sharp the rates of each side and category can be, and which are too small."""
    sides: list[tuple[Count, int]] = []  # what is counted, and how many samples it needs
    sides += [(side, 0) for side in (census.attacks, census.benign) if side.samples]
    stated = [count for count in census.categories if count.value != UNSTATED]
    small = []
    for count in stated:
        least = minimum_of(count.value, criteria.min_per_category)
        sides.append((count, least))
        if count.samples < least:
            small.append(count.value)
    numbers: dict[str, float | None] = {}
    details = []
    for count, least in sides:
        numbers[f"{count.value}_samples"] = count.samples
        numbers[f"{count.value}_groups"] = count.groups
        numbers[f"{count.value}_half_width"] = criteria.half_width(count.samples)
        numbers[f"{count.value}_half_width_groups"] = criteria.half_width(count.groups)
        details.append(_size_line(count, least, criteria.half_width))
    fewer, more = sorted((census.attacks.samples, census.benign.samples))
    is_lopsided = fewer > 0 and more > _LOPSIDED * fewer
    return _issue(
        "balanced",
        numbers,
        status=bool(small) or is_lopsided,
        details=details,
        stated=len(stated),
        small=small,
        lopsided=is_lopsided,
        confidence=criteria.confidence,
    )


def _readable(census: Census) -> DataIssue:
    """Say which texts hold unusual characters, those that look damaged first."""
    damaged = [oddity for oddity in census.oddities if oddity.is_damage]
    odd = [oddity for oddity in census.oddities if not oddity.is_damage]
    return _issue(
        "readable",
        {oddity.kind: oddity.samples for oddity in census.oddities},
        status=bool(damaged),
        details=[f"{oddity.kind}: {', '.join(oddity.examples)}" for oddity in (*damaged, *odd)],
        damaged=_oddity_words(damaged),
        odd=_oddity_words(odd),
    )


def _oddity_words(oddities: Sequence[Oddity]) -> list[str]:
    """Say how many samples have each of some oddities."""
    return [f"{oddity.kind} in {counted(oddity.samples, 'sample')}" for oddity in oddities]


def _size_line(count: Count, least: int, half_width: Callable[[float], float]) -> str:
    """Say how sharp a rate over some samples can be."""
    line = f"{label_noun(count.value)}: {counted(count.samples, 'sample')}, "
    line += f"±{100 * half_width(count.samples):.1f} points"
    if count.groups < count.samples:
        line += f" (±{100 * half_width(count.groups):.1f} if variants behave alike)"
    if least:
        line += f"; minimum {least}, ±{100 * half_width(least):.1f}"
    if count.groups < _FEW_GROUPS:
        line += f"; only {counted(count.groups, 'group')}"
    return line
