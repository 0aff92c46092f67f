"""What was run: fingerprints, versions, seeds, policies, settings."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - manifests are checked against these types
from dataclasses import field
from enum import StrEnum
from typing import Final

from guardmark.core.values import dataclass


class Policy(StrEnum):
    """What happens at run time when a defense gives no decision."""

    RECORD = "record"
    BLOCK = "block"
    ALLOW = "allow"
    FALLBACK_TO_MAIN = "fallback_to_main"
    STOP = "stop"


class LatencyMode(StrEnum):
    """How calls were spaced while latency was measured."""

    ISOLATED = "isolated"
    LOADED = "loaded"
    OPEN = "open"


BASELINE_TYPES: Final = ("allow-all", "block-all", "coin")
"""Types of defenses that are baselines whatever their configuration says."""

BASELINE_ROLE: Final = "baseline"

UNNAMED: Final = "run"
"""Name of a run that was not given one."""

IN_PROCESS: Final = "in-process"
"""Type of a defense that existed as an object in Python: no configuration rebuilds it."""

ARM_OF_AGENTS: Final = "agent-arm"
"""Type of a defense that is an arm of agents: a text is carried to the end of a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartManifest:
    """One defense, model or judge as it was configured.

    Attributes:
        name: Name in the configuration.
        kind: `defense`, `model` or `judge`.
        type: Registered type.
        version: The user's version of it, or guardmark's for built-in parts.
        fingerprint: SHA-256 (hex) of the resolved settings and of every file they name.
        view: What a defense looks at; empty for models and judges.
        threshold: Score from which the part blocks, or None.
        settings: Resolved settings as JSON values, secrets by name only.
        role: `baseline` for a defense that others are compared with, or empty.
    """

    name: str
    kind: str
    type: str
    version: str = ""
    fingerprint: str = ""
    view: str = ""
    threshold: float | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    role: str = ""

    @property
    def is_baseline(self) -> bool:
        """Whether it only marks the floor or the ceiling, and is no candidate."""
        return self.type in BASELINE_TYPES or self.role == BASELINE_ROLE


@dataclass(frozen=True, slots=True, kw_only=True)
class DataManifest:
    """One data set as it was read.

    Attributes:
        name: Name as printed in reports.
        version: The set's own version, or empty.
        sha256: Hash (hex) of the samples in order: ids, content hashes, labels and facets.
        attacks: Number of attack samples.
        benign: Number of benign samples.
        unlabelled: Number of samples that were kept without a label.
        files: File name to SHA-256 (hex) of its bytes.
        mapping: Field of a sample to the dotted path it was taken from.
        by_source: Number of samples from each source.
        by_variant: Number of samples of each variant.
    """

    name: str
    version: str
    sha256: str
    attacks: int
    benign: int
    unlabelled: int = field(default=0, metadata={"json": False})
    files: Mapping[str, str] = field(default_factory=dict, metadata={"json": False})
    mapping: Mapping[str, str] = field(default_factory=dict, metadata={"json": False})
    by_source: Mapping[str, int] = field(default_factory=dict, metadata={"json": False})
    by_variant: Mapping[str, int] = field(default_factory=dict, metadata={"json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """What was run, in full.

    Attributes:
        name: Name of the run.
        guardmark_version: Version of this package.
        config_sha256: Hash (hex) of the resolved configuration.
        data_sha256: Hash (hex) over all data sets.
        created_utc: Start, ISO 8601 with seconds; set by `app`.
        seed: Seed of everything that is drawn.
        repeats: How often each sample is run.
        confidence: Nominal coverage of intervals.
        min_per_category: Below this many samples a category is greyed.
        on_malformed: Policy for malformed answers.
        on_error: Policy for errors.
        latency_mode: How calls were spaced.
        concurrency: Calls in flight at most.
        warmup: Calls made before measuring, kept apart.
        evaluator: Who answers for the run.
        parts: Defenses, models and judges.
        data: Data sets.
        categories: Category names of the taxonomy with subcategories, extensions included.
        settings: Whatever else the configuration said, as JSON values.
        shared_answers: Arms of a pipeline that one answer of the target model serves, generated
            once for each sample and repeat; empty with a single arm.
    """

    name: str
    guardmark_version: str
    config_sha256: str
    data_sha256: str
    created_utc: str
    seed: int
    repeats: int
    confidence: float
    min_per_category: int
    on_malformed: Policy
    on_error: Policy
    latency_mode: LatencyMode
    concurrency: int
    warmup: int
    evaluator: str
    parts: tuple[PartManifest, ...]
    data: tuple[DataManifest, ...]
    categories: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, object] = field(default_factory=dict)
    shared_answers: tuple[str, ...] = ()
