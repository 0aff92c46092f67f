"""The benign twin and the critic of an attacker model: in words, and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.operators import OperatorClass
from guardmark.reports.document.cells import of_difference, rate_text
from guardmark.reports.document.wording import count_text, measure_text
from guardmark.reports.encode import Json, difference_json, estimate_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.adaptive.attacker_rows import Spending
    from guardmark.analysis.adaptive.critic import CriticCard
    from guardmark.analysis.adaptive.rewording import RewordingCard

_MEANING: Final = {
    OperatorClass.HOLDS: "it holds: attacks are recognised in other words, and benign texts pass",
    OperatorClass.BLANKET: "a blanket block: what the model rewords is blocked, attack or not",
    OperatorClass.BLIND: "blind: what the model rewords passes, attack or not",
    OperatorClass.INVERTED: "inverted: reworded attacks pass, and benign texts are blocked",
    OperatorClass.UNKNOWN: "unknown: nothing to compare",
}
"""What each standing says of a defense, with what an attacker model rewords."""


def twin_sentence(name: str, twin: RewordingCard) -> str:
    """Say what the defense does to benign texts that the attacker model rewords."""
    if not twin.samples:
        return f"{name}: no benign text was reworded: the model sent no attack, or none is answered"
    if not twin.blocked.trials:
        return (
            f"{name}: the attacker model was asked to reword {count_text(twin.samples)} benign "
            "texts, and none came to be sent"
        )
    gap = measure_text(of_difference(twin.separation))
    return (
        f"{name}: benign texts reworded by the attacker model are blocked at "
        f"{rate_text(twin.blocked)}, as they are at {rate_text(twin.as_is)}; attacks it "
        f"reworded at {rate_text(twin.attacks_blocked)}, J {gap}: "
        f"{_MEANING[twin.standing]}{_doubt(twin)}"
    )


def _doubt(twin: RewordingCard) -> str:
    if twin.is_clear or twin.standing is OperatorClass.UNKNOWN:
        return ""
    return ", by these counts, which are too few to be sure"


def twin_cautions(name: str, twin: RewordingCard) -> Iterator[str]:
    """Say what of the benign twin failed."""
    for account, spent in twin.spending.items():
        if spent.failed:
            yield (
                f"{name}: {count_text(spent.failed)} of {count_text(spent.calls)} {account} calls "
                "about benign texts failed; they count in no rate"
            )
    if twin.unjudged:
        yield (
            f"{name}: {count_text(twin.unjudged)} benign candidates got no verdict on sameness "
            "that can be read; they were not sent"
        )


def critic_sentence(name: str, critic: CriticCard) -> str:
    """Say what a critic was asked and how it answered."""
    if critic.has_scores:
        return (
            f"{name}: the critic ({critic.model}) was not asked: the defense tells its score (A2), "
            "which the attacker model is shown"
        )
    if not critic.spending.calls:
        return f"{name}: the critic ({critic.model}) was left nothing to guess"
    return (
        f"{name}: the critic ({critic.model}) was asked {count_text(critic.spending.calls)} times "
        f"how close a blocked candidate came; {rate_text(critic.guessed)} of its answers hold a "
        "figure. It chose which candidates the attacker model was shown, and nothing else"
    )


def critic_cautions(name: str, critic: CriticCard) -> Iterator[str]:
    """Say what keeps a reader from trusting a critic's choice."""
    if critic.is_also and not critic.has_scores:
        yield f"{name}: the critic is the same model as {critic.is_also}"
    if critic.spending.failed:
        yield (
            f"{name}: {count_text(critic.spending.failed)} of "
            f"{count_text(critic.spending.calls)} critic calls failed; no figure came of them"
        )
    for kind, rate in (("refused", critic.refused), ("cannot be read", critic.invalid)):
        if rate.successes:
            share = rate_text(rate)
            yield f"{name}: of the critic's answers {share} {kind}; no figure came of them"


def twin_json(twin: RewordingCard | None) -> Json | None:
    """Encode the benign twin of an attacker model."""
    if twin is None:
        return None
    return {
        "samples": twin.samples,
        "candidates": twin.candidates,
        "unjudged": twin.unjudged,
        **{name: estimate_json(rate) for name, rate in twin.rates.items()},
        "change": difference_json(twin.change),
        "separation": difference_json(twin.separation),
        "standing": twin.standing.value,
        "is_clear": twin.is_clear,
        "strategies": [
            {
                "name": each.name,
                "blocked": estimate_json(each.blocked),
                "standing": each.standing.value,
            }
            for each in twin.strategies
        ],
        "spending": {name: model_spending_json(each) for name, each in twin.spending.items()},
    }


def critic_json(critic: CriticCard | None) -> Json | None:
    """Encode how a critic answered."""
    if critic is None:
        return None
    return {
        "model": critic.model,
        "is_also": critic.is_also,
        "has_scores": critic.has_scores,
        "repairs": critic.repairs,
        **{name: estimate_json(rate) for name, rate in critic.rates.items()},
    }


def model_spending_json(spent: Spending) -> Json:
    """Encode what a model consumed."""
    return {
        "calls": spent.calls,
        "failed": spent.failed,
        "calls_with_tokens": spent.reported,
        "tokens_read": spent.tokens_read,
        "tokens_written": spent.tokens_written,
        "calls_with_price": spent.priced,
        "cost": spent.cost if spent.priced else None,
    }
