"""What an attacker model came to: in words, and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.adaptive.attacker_controls import (
    critic_cautions,
    critic_json,
    critic_sentence,
    model_spending_json,
    twin_cautions,
    twin_json,
    twin_sentence,
)
from guardmark.reports.document.blocks import Unit
from guardmark.reports.document.cells import rate_text
from guardmark.reports.document.wording import count_text, value_text
from guardmark.reports.encode import Json, estimate_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.adaptive.attacker import AttackerCard
    from guardmark.analysis.adaptive.card import AdaptiveCard

_NOT_CALIBRATED: Final = "not calibrated"
"""What stands in the place of a calibration that never was."""


def attacker_text(attacker: AttackerCard) -> str:
    """Name the models of an attack."""
    critic = f"; closeness guessed by {attacker.critic.model}" if attacker.critic else ""
    if not attacker.has_judge:
        return f"{attacker.model}; nobody judged whether candidates ask for the same{critic}"
    told = f"{attacker.model}; sameness judged by {attacker.judge}"
    if attacker.tau is not None:
        told += f", cosine {attacker.tau:g} and above (tau: {attacker.calibration})"
    return f"{told}{critic}"


def attacker_sentences(card: AdaptiveCard) -> Iterator[tuple[str, str]]:
    """Say what the attacker model added, how it answered and what it cost."""
    attacker = card.attacker
    if attacker is None:
        return
    yield "Model", brought_sentence(card.name, attacker)
    if attacker.attacks.trials:
        yield "Replies", _wrote_sentence(card.name, attacker)
        yield "Spent", f"{card.name}: {cost_text(attacker)}"


def control_sentences(card: AdaptiveCard) -> Iterator[tuple[str, str]]:
    """Say what the benign twin and the critic of an attacker model came to."""
    attacker = card.attacker
    if attacker is None or not attacker.attacks.trials:
        return
    if attacker.twin is not None:
        yield "Benign twin", twin_sentence(card.name, attacker.twin)
    if attacker.critic is not None:
        yield "Critic", critic_sentence(card.name, attacker.critic)


def brought_sentence(name: str, attacker: AttackerCard) -> str:
    """Say what the attacker model brought through that could be proved."""
    if not attacker.attacks.trials:
        return f"{name}: the rounds before left no attack to the attacker model"
    return (
        f"{name}: of the attacks it was given, the attacker model brought "
        f"{rate_text(attacker.attacks)} through, proved; {count_text(attacker.only)} fell to "
        "nothing else"
    )


def _wrote_sentence(name: str, attacker: AttackerCard) -> str:
    judged = f", and {rate_text(attacker.equivalent)} of those judged ask for the same"
    return (
        f"{name}: the attacker model refused {rate_text(attacker.refused)} of its answers and "
        f"{rate_text(attacker.invalid)} could not be read; of its candidates "
        f"{rate_text(attacker.repeated)} were repeats{judged if attacker.has_judge else ''}"
    )


def cost_text(attacker: AttackerCard) -> str:
    """Say what the models consumed on attacks, and what that is for each attack that fell."""
    asked = sum(each.calls for each in attacker.spending.values())
    tokens = sum(each.tokens_read + each.tokens_written for each in attacker.spending.values())
    cost = sum(each.cost for each in attacker.spending.values())
    parts = [f"{count_text(asked)} calls", f"{count_text(tokens)} tokens told"]
    if any(each.priced for each in attacker.spending.values()):
        parts.append(f"{cost:.4g} of the price table's currency")
    who = "attacker model, judge and critic" if attacker.critic else "attacker model and judge"
    each_calls = attacker.per_bypass(asked)
    if each_calls is None:
        return f"{who} took {', '.join(parts)}; no attack fell to them"
    per = f"{value_text(each_calls, Unit.COUNT)} calls"
    return f"{who} took {', '.join(parts)}: {per} for each attack that fell"


def attacker_cautions(card: AdaptiveCard) -> Iterator[str]:
    """Say what keeps a reader from taking the figures of an attacker model at face value."""
    attacker = card.attacker
    if attacker is None or not attacker.attacks.trials:
        return
    yield from _proof_cautions(card.name, attacker)
    if not attacker.calls_left:
        yield (
            f"{card.name}: the bound on calls of the attacker model was reached, so some attacks "
            "got fewer tries"
        )
    for name, spent in attacker.spending.items():
        if spent.failed and name != "critic":  # which has a line of its own
            yield (
                f"{card.name}: {count_text(spent.failed)} of {count_text(spent.calls)} {name} "
                "calls failed; they count in no rate"
            )
    if attacker.unjudged:
        yield (
            f"{card.name}: {count_text(attacker.unjudged)} candidates got no verdict on sameness "
            "that can be read; they were not sent"
        )
    if attacker.twin is not None:
        yield from twin_cautions(card.name, attacker.twin)
    if attacker.critic is not None:
        yield from critic_cautions(card.name, attacker.critic)


def _proof_cautions(name: str, attacker: AttackerCard) -> Iterator[str]:
    """Say what weakens the proof that candidates ask for the same."""
    if not attacker.has_judge:
        yield (
            f"{name}: no judge of sameness: {rate_text(attacker.unproved)} of the attacks came "
            "through as candidates that nobody proved (V4); they count in no other rate"
        )
    if attacker.tau is not None and attacker.calibration == _NOT_CALIBRATED:
        yield (
            f"{name}: tau not calibrated: nobody knows how often a cosine of "
            f"{attacker.tau:g} calls another request the same"
        )
    if attacker.is_same_model:
        yield f"{name}: the attacker model judged its own candidates"


def attacker_json(attacker: AttackerCard | None) -> Json | None:
    """Encode the figures of an attacker model."""
    if attacker is None:
        return None
    return {
        "model": attacker.model,
        "judge": attacker.judge,
        "is_same_model": attacker.is_same_model,
        "tau": attacker.tau,
        "calibration": attacker.calibration,
        **{name: estimate_json(rate) for name, rate in attacker.rates.items()},
        **attacker.counts,
        "calls_left": attacker.calls_left,
        "strategies": [
            {
                "name": each.name,
                "candidates": each.candidates,
                "passed": estimate_json(each.passed),
            }
            for each in attacker.strategies
        ],
        "spending": {name: model_spending_json(each) for name, each in attacker.spending.items()},
        "critic": critic_json(attacker.critic),
        "twin": twin_json(attacker.twin),
    }
