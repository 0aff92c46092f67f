"""Whether a data set can carry the conclusions drawn from it, one issue for each question."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from guardmark.datasets.checks.census import UNSTATED, take_census
from guardmark.datasets.checks.duplicates import THRESHOLD, describe_method, find_duplicates
from guardmark.datasets.checks.mix import effective_samples, mix_distances, mix_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.core.manifest import DataManifest
    from guardmark.core.sample import Sample
    from guardmark.core.taxonomy import Taxonomy
    from guardmark.datasets.checks.census import Census, Count
    from guardmark.datasets.checks.duplicates import Duplicates
    from guardmark.datasets.checks.mix import Dimension


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


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the plural where it needs one."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def label_noun(value: str) -> str:
    """Return what the samples of a label are called; other words stay."""
    return "attacks" if value == "attack" else value


CATEGORY_MINIMA = {
    "direct_injection": 100,
    "indirect_injection": 100,
    "jailbreak": 150,
    "extraction": 100,
    "output_manipulation": 80,
}
"""Least samples of each built-in category of attacks; own categories go by the configuration."""

_FEW_GROUPS = 10
_FAR = 0.2
_LOPSIDED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What a data set is held against."""

    taxonomy: Taxonomy
    half_width: Callable[[float], float]
    confidence: float = 0.95
    min_per_category: int = 100
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
    against = [s.id for s in samples if s.expected == ("allow" if s.is_attack else "block")]
    return DataCheck(
        census=census,
        duplicates=duplicates,
        findings=(
            _labelled(census, duplicates, inferred, against),
            _categorised(census, criteria, warnings),
            _diverse(census, duplicates),
            _representative(samples, criteria.mix),
            _versioned(manifests),
            _balanced(census, criteria),
            _readable(census),
        ),
    )


def _labelled(
    census: Census, duplicates: Duplicates, inferred: int, against: Sequence[str]
) -> DataIssue:
    attacks, benign = census.attacks.samples, census.benign.samples
    same = [c for c in duplicates.conflicts if c.is_same]
    near = [c for c in duplicates.conflicts if not c.is_same]
    parts = [f"{attacks:,} attacks, {benign:,} benign."]
    status = Status.OK
    if near:
        parts.append(
            f"Opposite labels on {counted(len(near), 'pair')} of nearly equal texts: right for "
            "contrasts made on purpose, label noise otherwise."
        )
        status = Status.WARNING
    if inferred:
        parts.append(f"The label of {counted(inferred, 'sample')} is inferred, not stated.")
        status = Status.WARNING
    if not attacks or not benign:
        missing, rate = ("attacks", "ASR") if not attacks else ("benign samples", "FPR")
        parts.append(f"Without {missing} the {rate} is undefined.")
        status = Status.WARNING
    if same:
        parts.append(f"Opposite labels on {counted(len(same), 'pair')} of equal wording.")
        status = Status.PROBLEM
    if against:
        those = f"{counted(len(against), 'sample')} ({', '.join(against[:3])})"
        parts.append(f"The expected decision contradicts the label of {those}.")
        status = Status.PROBLEM
    shown = [
        f"{c.attack} (attack) and {c.benign} (benign): similarity {c.similarity:.2f}"
        for c in [*same, *near]
    ]
    return DataIssue(
        aspect="labelled",
        status=status,
        message=" ".join(parts),
        details=some_of(shown),
        numbers={
            "attacks": attacks,
            "benign": benign,
            "inferred_labels": inferred,
            "against_expectation": len(against),
            "contradictions": len(same),
            "near_contradictions": len(near),
        },
    )


def _categorised(census: Census, criteria: Criteria, warnings: Sequence[str]) -> DataIssue:
    without = sum(c.samples for c in census.categories if c.value == UNSTATED)
    unsevere = sum(c.samples for c in census.severities if c.value == UNSTATED)
    present = {c.value for c in census.categories}
    below = {c.value for c in census.subcategories}
    empty = [c.name for c in criteria.taxonomy.categories if c.name not in present]
    gaps = [
        f"{c.name}/{sub}"
        for c in criteria.taxonomy.categories
        for sub in c.subcategories
        if c.name in present and f"{c.name}/{sub}" not in below
    ]
    declared = len(criteria.taxonomy.categories)
    parts = [f"{declared - len(empty)} of {declared} declared categories have attacks."]
    if empty:
        parts.append(f"None in: {', '.join(empty)}.")
    if gaps:
        parts.append(f"{len(gaps)} declared subcategories of the others have none.")
    if without:
        parts.append(f"No category is given for {counted(without, 'attack')}.")
    if unsevere:
        parts.append(f"No severity is given for {counted(unsevere, 'attack')}.")
    details = [f"no attacks in {name}" for name in gaps]
    weak = census.attacks.samples and (empty or gaps or without or unsevere or warnings)
    return DataIssue(
        aspect="categorised",
        status=Status.WARNING if weak else Status.OK,
        message=" ".join(parts),
        details=(*some_of(details), *warnings),
        numbers={
            "categories": declared - len(empty),
            "declared_categories": declared,
            "empty_categories": len(empty),
            "empty_subcategories": len(gaps),
            "without_category": without,
            "without_severity": unsevere,
        },
    )


def _diverse(census: Census, duplicates: Duplicates) -> DataIssue:
    total, repeated = census.total, duplicates.copies + duplicates.rewordings
    languages = sum(count.value != UNSTATED for count in census.languages)
    techniques = sum(count.value != UNSTATED for count in census.techniques)
    parts = [
        f"{total.groups:,} groups, the largest of {counted(total.largest_group, 'sample')};",
        f"{counted(languages, 'language')}; {counted(techniques, 'technique')}.",
    ]
    if (lengths := census.lengths) is not None:
        parts.append(
            f"Texts of {lengths.shortest:,} to {lengths.longest:,} characters, "
            f"half of them up to {lengths.p50:,}."
        )
    status = Status.OK
    if repeated or duplicates.families:
        status = Status.WARNING
        parts.append(
            f"Copies: {duplicates.copies:,}. Equal but for case, spacing and punctuation: "
            f"{duplicates.rewordings:,}. Families of near-duplicates across groups: "
            f"{len(duplicates.families):,}, which intervals take for independent. Give each "
            "family one group (guardmark data convert --group-families), or: guardmark data dedup."
        )
    details = [
        f"{len(each.ids)} near-duplicates in {each.groups} groups: {', '.join(each.ids[:SHOWN])}"
        f"{' ...' * (len(each.ids) > SHOWN)}"
        for each in duplicates.families
    ]
    return DataIssue(
        aspect="diverse",
        status=status,
        message=" ".join(parts),
        details=(
            *some_of(details),
            f"near-duplicates: {describe_method(duplicates.threshold)}",
            "text only: no images, sound or files, whatever the samples speak of",
        ),
        numbers={
            "groups": total.groups,
            "largest_group": total.largest_group,
            "languages": languages,
            "copies": duplicates.copies,
            "rewordings": duplicates.rewordings,
            "near_duplicate_families": len(duplicates.families),
            "surplus_groups": duplicates.surplus_groups,
            "threshold": duplicates.threshold,
        },
    )


def _representative(samples: Sequence[Sample], mix: tuple[Dimension, ...]) -> DataIssue:
    if not mix:
        return DataIssue(
            aspect="representative",
            status=Status.NOT_ASSESSED,
            message=(
                "Representativeness was not assessed: state the shares of your traffic in a "
                "configuration (stats: {deployment_mix: ...}), or name data like it (--reference)."
            ),
        )
    distances = mix_distances(samples, mix)
    worst = max((d.total_variation for d in distances), default=None)
    absent = max((d.absent_share for d in distances), default=0.0)
    worth = effective_samples(mix_weights(samples, mix))
    details = [
        f"{d.dimension} of {label_noun(d.label.value)}: distance {d.total_variation:.2f}"
        + (f"; nothing for {', '.join(d.absent)} ({d.absent_share:.0%})" if d.absent else "")
        for d in distances
    ]
    far = worst is not None and worst > _FAR
    distance = "undefined" if worst is None else f"{worst:.2f}"
    return DataIssue(
        aspect="representative",
        status=Status.WARNING if far or absent > 0 else Status.OK,
        message=(
            f"Largest distance to the stated deployment: {distance} (total variation; 0 is equal). "
            f"Reweighted to it, {len(samples):,} samples are worth {worth:,.0f}."
        ),
        details=tuple(details),
        numbers={
            "largest_total_variation": worst,
            "largest_absent_share": absent,
            "effective_samples": worth,
        },
    )


def _versioned(manifests: Sequence[DataManifest]) -> DataIssue:
    unversioned = sorted({m.name for m in manifests if not m.version and m.attacks + m.benign})
    details = [
        f"{name}: content hash {manifest.sha256[:16]}"
        for manifest in manifests
        for name in manifest.files
        if manifest.attacks + manifest.benign
    ]
    if unversioned:
        message = f"No version is stated for {', '.join(unversioned)}; the hash stands for it."
    else:
        versions = dict.fromkeys(f"{m.name} {m.version}" for m in manifests)
        message = f"Version and content hash are known: {', '.join(versions)}."
    return DataIssue(
        aspect="versioned",
        status=Status.WARNING if unversioned else Status.OK,
        message=message,
        details=some_of(details),
        numbers={"without_version": len(unversioned)},
    )


def _balanced(census: Census, criteria: Criteria) -> DataIssue:
    stated = [c for c in census.categories if c.value != UNSTATED]
    small = [c.value for c in stated if c.samples < _minimum(c.value, criteria)]
    attacks, benign = census.attacks.samples, census.benign.samples
    lopsided = min(attacks, benign) > 0 and max(attacks, benign) > _LOPSIDED * min(attacks, benign)
    parts = []
    if stated:
        parts.append(f"{len(stated) - len(small)} of {len(stated)} categories reach their minimum.")
    if small:
        parts.append(f"Too few in: {', '.join(small)}.")
    if lopsided:
        parts.append("One label has more than four times the samples of the other.")
    parts.append(
        f"Half-widths: {100 * criteria.confidence:g} % Wilson intervals at a rate of 50 %."
    )
    sides = [
        *((count, 0) for count in (census.attacks, census.benign) if count.samples),
        *((count, _minimum(count.value, criteria)) for count in stated),
    ]
    return DataIssue(
        aspect="balanced",
        status=Status.WARNING if small or lopsided else Status.OK,
        message=" ".join(parts),
        details=tuple(_size_line(count, least, criteria.half_width) for count, least in sides),
        numbers={
            f"{count.value}_{name}": value
            for count, _ in sides
            for name, value in (
                ("samples", count.samples),
                ("groups", count.groups),
                ("half_width", criteria.half_width(count.samples)),
                ("half_width_groups", criteria.half_width(count.groups)),
            )
        },
    )


def _readable(census: Census) -> DataIssue:
    damaged = [o for o in census.oddities if o.is_damage]
    odd = [o for o in census.oddities if not o.is_damage]
    parts = []
    if damaged:
        kinds = ", ".join(f"{o.kind} in {counted(o.samples, 'sample')}" for o in damaged)
        parts.append(f"Looks damaged on the way: {kinds}.")
    if odd:
        kinds = ", ".join(f"{o.kind} in {counted(o.samples, 'sample')}" for o in odd)
        parts.append(f"Unusual, kept as it is: {kinds}.")
    return DataIssue(
        aspect="readable",
        status=Status.WARNING if damaged else Status.OK,
        message=" ".join(parts) or "Nothing unusual about the characters.",
        details=tuple(f"{o.kind}: {', '.join(o.examples)}" for o in (*damaged, *odd)),
        numbers={o.kind: o.samples for o in census.oddities},
    )


def _minimum(category: str, criteria: Criteria) -> int:
    return CATEGORY_MINIMA.get(category, criteria.min_per_category)


def _size_line(count: Count, least: int, half_width: Callable[[float], float]) -> str:
    """Say how sharp a rate over some samples can be."""
    line = f"{label_noun(count.value)}: {counted(count.samples, 'sample')}, "
    line += f"±{100 * half_width(count.samples):.1f} points"
    if count.groups < count.samples:
        line += f" (±{100 * half_width(count.groups):.1f} if variants behave alike)"
    if least:
        line += f"; minimum {least}, ±{100 * half_width(least):.1f}"
    if count.groups < _FEW_GROUPS:
        line += f"; only {count.groups} groups"
    return line
