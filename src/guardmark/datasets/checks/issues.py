"""Whether a data set can carry the conclusions drawn from it, one issue for each question."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.core.errors import counted
from guardmark.core.sample import USUAL_MINIMUM, minimum_of
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
    from guardmark.datasets.checks.census import Census, Count
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
    """The answer to one question about a data set."""

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
    return "attacks" if value == "attack" else value


_FEW_GROUPS = 10
_FAR = 0.2
_LOPSIDED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What a data set is held against."""

    taxonomy: Taxonomy
    half_width: Callable[[float], float]
    confidence: float = 0.95
    min_per_category: int = USUAL_MINIMUM
    threshold: float = THRESHOLD
    mix: tuple[Dimension, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheck:
    """Everything `guardmark data check` says of a data set."""

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
    inferred = sum(str(s.metadata.get("label_source", "")).startswith("inferred") for s in samples)
    against = [sample.id for sample in samples if contradicts_label(sample)]
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
    if not isinstance(status, Status):
        status = Status.WARNING if status else Status.OK
    words = " ".join(message.split())
    return DataIssue(
        aspect=aspect, status=status, message=words, details=tuple(details), numbers=numbers
    )


def _labelled(
    census: Census, duplicates: Duplicates, inferred: int, against: Sequence[str]
) -> DataIssue:
    attacks, benign = census.attacks.samples, census.benign.samples
    same = [c for c in duplicates.conflicts if c.is_same]
    near = [c for c in duplicates.conflicts if not c.is_same]
    shown = [
        f"{c.attack} (attack) and {c.benign} (benign): similarity {c.similarity:.2f}"
        for c in [*same, *near]
    ]
    numbers = {
        "attacks": attacks,
        "benign": benign,
        "inferred_labels": inferred,
        "against_expectation": len(against),
        "contradictions": len(same),
        "near_contradictions": len(near),
    }
    is_weak = bool(near or inferred or not attacks or not benign)
    status = Status.PROBLEM if same or against else is_weak
    return _issue("labelled", numbers, status=status, details=some_of(shown), against=against)


def _categorised(census: Census, criteria: Criteria, warnings: Sequence[str]) -> DataIssue:
    without = sum(c.samples for c in census.categories if c.value == UNSTATED)
    unsevere = sum(c.samples for c in census.severities if c.value == UNSTATED)
    present = {c.value for c in census.categories}
    below = {c.value for c in census.subcategories}
    empty = [name for name in criteria.taxonomy if name not in present]
    gaps = [
        f"{name}/{sub}"
        for name, subs in criteria.taxonomy.items()
        for sub in subs
        if name in present and f"{name}/{sub}" not in below
    ]
    declared = len(criteria.taxonomy)
    details = some_of([f"no attacks in {name}" for name in gaps])
    numbers = {
        "categories": declared - len(empty),
        "declared_categories": declared,
        "empty_categories": len(empty),
        "empty_subcategories": len(gaps),
        "without_category": without,
        "without_severity": unsevere,
    }
    is_weak = bool(census.attacks.samples and (empty or gaps or without or unsevere or warnings))
    details = (*details, *warnings)
    return _issue("categorised", numbers, status=is_weak, details=details, empty=empty)


def _diverse(
    census: Census,
    duplicates: Duplicates,
    patterns: Sequence[Pattern],
    crossed: Sequence[CrossedColumn],
) -> DataIssue:
    total, families = census.total, duplicates.families
    lines = [
        f"{len(each.ids)} near-duplicates in {each.groups} groups: {', '.join(each.ids[:SHOWN])}"
        f"{' ...' * (len(each.ids) > SHOWN)}"
        for each in families
    ]
    method = f"near-duplicates: {describe_method(duplicates.threshold)}"
    kinds = "text only: no images, sound or files"
    if census.images:
        kinds = f"{counted(census.images, 'sample')} with images; no sound or files"
    made = [pattern_line(pattern) for pattern in patterns]
    made += [crossed_line(column) for column in crossed]
    details = (*some_of(made), *some_of(lines), method, f"{kinds}, whatever the samples speak of")
    numbers = {
        "groups": total.groups,
        "largest_group": total.largest_group,
        "languages": sum(count.value != UNSTATED for count in census.languages),
        "copies": duplicates.copies,
        "rewordings": duplicates.rewordings,
        "near_duplicate_families": len(families),
        "surplus_groups": duplicates.surplus_groups,
        "patterns": len(patterns),
        "samples_of_patterns": sum(len(pattern.ids) for pattern in patterns),
        "threshold": duplicates.threshold,
        "crossed_columns": len(crossed),
    }
    fewer = next((column for column in crossed if column.has_fewer), None)
    more = {
        "crossed": crossed,
        "fewer": fewer,
        "techniques": sum(count.value != UNSTATED for count in census.techniques),
        "lengths": census.lengths,
    }
    is_weak = bool(duplicates.copies + duplicates.rewordings or families or patterns or crossed)
    return _issue("diverse", numbers, status=is_weak, details=details, **more)


def _representative(samples: Sequence[Sample], mix: tuple[Dimension, ...]) -> DataIssue:
    if not mix:
        return _issue("representative", {}, status=Status.NOT_ASSESSED)
    distances = mix_distances(samples, mix)
    worst = max((d.total_variation for d in distances), default=None)
    absent = max((d.absent_share for d in distances), default=0.0)
    details = [
        f"{d.dimension} of {label_noun(d.label.value)}: distance {d.total_variation:.2f}"
        + (f"; nothing for {', '.join(d.absent)} ({d.absent_share:.0%})" if d.absent else "")
        for d in distances
    ]
    numbers = {
        "largest_total_variation": worst,
        "largest_absent_share": absent,
        "effective_samples": effective_samples(mix_weights(samples, mix)),
    }
    is_far = (worst is not None and worst > _FAR) or absent > 0
    more = {"mix": mix, "samples": len(samples)}
    return _issue("representative", numbers, status=is_far, details=details, **more)


def _versioned(manifests: Sequence[DataManifest]) -> DataIssue:
    unversioned = sorted({m.name for m in manifests if not m.version and m.attacks + m.benign})
    details = [
        f"{name}: content hash {manifest.sha256[:16]}"
        for manifest in manifests
        for name in manifest.files
        if manifest.attacks + manifest.benign
    ]
    more = {
        "unversioned": unversioned,
        "versions": dict.fromkeys(f"{m.name} {m.version}" for m in manifests),
    }
    numbers = {"without_version": len(unversioned)}
    return _issue("versioned", numbers, status=bool(unversioned), details=some_of(details), **more)


def _balanced(census: Census, criteria: Criteria) -> DataIssue:
    stated = [c for c in census.categories if c.value != UNSTATED]
    least = {c.value: minimum_of(c.value, criteria.min_per_category) for c in stated}
    small = [c.value for c in stated if c.samples < least[c.value]]
    attacks, benign = census.attacks.samples, census.benign.samples
    lopsided = min(attacks, benign) > 0 and max(attacks, benign) > _LOPSIDED * min(attacks, benign)
    sides = [
        *((count, 0) for count in (census.attacks, census.benign) if count.samples),
        *((count, least[count.value]) for count in stated),
    ]
    numbers = {
        f"{count.value}_{name}": value
        for count, _ in sides
        for name, value in (
            ("samples", count.samples),
            ("groups", count.groups),
            ("half_width", criteria.half_width(count.samples)),
            ("half_width_groups", criteria.half_width(count.groups)),
        )
    }
    details = [_size_line(count, minimum, criteria.half_width) for count, minimum in sides]
    is_weak = bool(small or lopsided)
    more = {"small": small, "lopsided": lopsided, "confidence": criteria.confidence}
    return _issue("balanced", numbers, status=is_weak, details=details, stated=len(stated), **more)


def _readable(census: Census) -> DataIssue:
    damaged = [o for o in census.oddities if o.is_damage]
    odd = [o for o in census.oddities if not o.is_damage]
    details = [f"{o.kind}: {', '.join(o.examples)}" for o in (*damaged, *odd)]
    more = {
        name: [f"{o.kind} in {counted(o.samples, 'sample')}" for o in each]
        for name, each in (("damaged", damaged), ("odd", odd))
    }
    numbers = {o.kind: o.samples for o in census.oddities}
    return _issue("readable", numbers, status=bool(damaged), details=details, **more)


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
