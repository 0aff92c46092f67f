"""What a reader of records decides before looking at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.manifest import RunManifest

PARTIAL_MAX_FPR: Final = 0.1  # up to which the partial area looks at false positive rates


@dataclass(frozen=True, slots=True, kw_only=True)
class RelianceLimits:
    """How much a defense may let through and wrongly block, and still be relied on.

    One set for verdict, advice, picture and gate: those of the gate where it states them.

    Attributes:
        attacks: Share of attacks that may get through, in [0, 1].
        alarms: Share of benign samples that may be blocked, in [0, 1].
        is_of_gate: Whether the run's own gate states one of them.
    """

    attacks: float = 0.10
    alarms: float = 0.05
    is_of_gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisSettings:
    """How sure you want to be, and of what.

    Attributes:
        confidence: Nominal coverage of every interval, in (0, 1).
        min_per_category: Slices of fewer answered samples are greyed.
        margin: Half-width one would like an interval to have, in (0, 0.5).
        non_inferiority_margin: By how much a higher false positive rate counts as not worse; None
            when nothing was fixed.
        replicates: Bootstrap replicates, at least 2,000.
        seed: Seed of the bootstrap and of the calibration split.
        prevalences: Shares of attacks at which precision is restated, each in [0, 1].
        cost_missed_attack: What an allowed attack costs, or None when not stated.
        cost_false_alarm: What a blocked benign input costs, or None when not stated.
        thresholds: Defense and score from which it shall block, to decide anew from stored scores.
        listed_samples: How many samples a report lists at most.
        excerpt_characters: How much of a text a report shows.
        run_folder: The run's folder as a person types it, for the commands a report names.
        slices: Fields of metadata by which samples are sliced too.
        category_map: Defense to its native categories, and of each the samples' own categories it
            stands for.
        weights: What each sample weighs at the deployment's mix, of mean 1 a label; empty without a
            mix.
        stop_when: Rules that could end defenses early, as the run recorded them.
        headline: Judging to stand on in place of the one that the run names.
        limits: Of a defense by itself.
        system_limits: Of what comes out of a pipeline.
        legacy_cards: Older definitions of a pipeline's card to count by, beside our own.
    """

    confidence: float = 0.95
    min_per_category: int = 100
    margin: float = 0.05
    non_inferiority_margin: float | None = None
    replicates: int = 2000
    seed: int = 7
    prevalences: tuple[float, ...] = (0.0001, 0.001, 0.01, 0.1)
    cost_missed_attack: float | None = None
    cost_false_alarm: float | None = None
    thresholds: tuple[tuple[str, float], ...] = ()
    listed_samples: int = 500
    excerpt_characters: int = 500
    run_folder: str = "RUN"
    slices: tuple[str, ...] = ()
    category_map: tuple[tuple[str, Mapping[str, tuple[str, ...]]], ...] = ()
    weights: tuple[float, ...] = ()
    stop_when: tuple[str, ...] = ()
    headline: str = ""
    limits: RelianceLimits = RelianceLimits()
    system_limits: RelianceLimits = RelianceLimits()
    legacy_cards: tuple[str, ...] = ()

    @staticmethod
    def of(manifest: RunManifest) -> AnalysisSettings:
        """Take from a manifest what it fixes; `dataclasses.replace` changes the rest."""
        run = manifest.settings.get("run")
        rules = None
        if isinstance(run, dict):
            rules = run.get("stop_when")
        return AnalysisSettings(
            confidence=manifest.confidence,
            min_per_category=manifest.min_per_category,
            seed=manifest.seed,
            stop_when=tuple(map(str, rules)) if isinstance(rules, list | tuple) else (),
        )
