"""Rates brought to the mix of categories, languages and lengths where a defense will run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRates:
    """Both error rates of one defense at the stated mix.

    They carry no interval: a weighted rate of few events has none that is known to cover here.

    Attributes:
        attack_success_rate: Attacks allowed, of those answered, by weight.
        false_positive_rate: Benign samples blocked, of those answered, by weight.
        worth_attacks: Unweighted attacks the weighted ones are worth (Kish).
        worth_benign: The same for benign samples.
    """

    attack_success_rate: Ratio
    false_positive_rate: Ratio
    worth_attacks: float
    worth_benign: float


def reweight(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings
) -> DeploymentRates | None:
    """Weigh the samples as the deployment's mix does.

    References:
        Deming & Stephan (1940), doi:10.1214/aoms/1177731829; Kish (1965), Survey Sampling.
    """
    if len(settings.weights) != frame.sample_count:
        return None
    at = arm.records.sample[arm.is_answered]
    weight, attack = np.asarray(settings.weights)[at], frame.samples.is_attack[at]
    erred = arm.is_blocked[arm.is_answered] != attack
    attacks, worth_attacks = _rate(weight[attack], erred[attack], settings)
    benign, worth_benign = _rate(weight[~attack], erred[~attack], settings)
    return DeploymentRates(
        attack_success_rate=attacks,
        false_positive_rate=benign,
        worth_attacks=worth_attacks,
        worth_benign=worth_benign,
    )


def _rate(
    weight: NDArray[np.float64], erred: NDArray[np.bool_], settings: AnalysisSettings
) -> tuple[Ratio, float]:
    total = float(weight.sum())
    worth = total**2 / float(weight @ weight) if total else 0.0
    reason = "no interval: weighted to the stated mix" if total else "no trials"
    return (
        Ratio(
            value=float(weight @ erred) / total if total else None,
            low=None,
            high=None,
            confidence=settings.confidence,
            method="weighted to the deployment's mix",
            trials=len(weight),
            reason=reason,
        ),
        worth,
    )
