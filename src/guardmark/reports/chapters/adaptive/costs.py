"""What a bypass costs the attacker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Table, TextCell, Unit
from guardmark.reports.document.cells import columns, of_estimate, row, slug, words
from guardmark.reports.document.wording import UNDEFINED, count_text, measure_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.costs import CostPerBypass


_NO_MODEL: Final = "no attacker model"

_NO_PRICE: Final = "no price is configured"

_NO_TIME: Final = "nothing was timed"

_NO_USAGE: Final = "the service reports none"


def costs_table(card: AdaptiveCard) -> Table:
    """Return what the attacker paid, in all, for each bypass and for each attack."""
    costs = card.costs
    no_tokens = _NO_MODEL if costs.model_calls.total is None else _NO_USAGE
    rows = (
        ("calls of the defense", costs.calls, ""),
        ("calls of the attacker model", costs.model_calls, _NO_MODEL),
        ("tokens of the attacker model", costs.tokens, no_tokens),
        ("money", costs.money, _NO_PRICE),
        ("seconds of service", costs.seconds, _NO_TIME),
    )
    return Table(
        id=f"adaptive-costs-{slug(card.name)}",
        title=f"{card.name}: what the attacker paid",
        columns=columns("Cost", "In all", "For a bypass", "For an attack", "Known of calls"),
        rows=tuple(row(*_cells(label, expense, why)) for label, expense, why in rows),
        note=f"{count_text(costs.calls.bypasses)} attacks got through, as they are included, of "
        f"{count_text(costs.calls.attacks)}. Fixed list and probes are included, what the "
        "evaluator asked is not. A critic counts with the attacker model. Money is in the currency "
        "of the price table; seconds add up the service time of calls, many of which run at once.",
        collapsed=True,
    )


def cost_words(card: AdaptiveCard) -> str:
    """Say what a bypass costs beside calls; empty where nothing is known."""
    parts = []
    for expense, write in (
        (card.costs.tokens, lambda value: f"{_amount(value)} tokens of the attacker model"),
        (card.costs.money, lambda value: f"{_amount(value)} in money"),
        (card.costs.seconds, _service),
    ):
        if expense.per_bypass is not None:
            least = "at least " if expense.is_partial else ""
            parts.append(f"{least}{write(expense.per_bypass)}")
    return f"for each bypass {', '.join(parts)}" if parts else ""


def _cells(label: str, expense: CostPerBypass, why: str) -> tuple[TextCell, ...]:
    if expense.total is None:
        return (words(label), words(f"{UNDEFINED}: {why}"), words(""), words(""), words(""))
    least = ">= " if expense.is_partial else ""
    return (
        words(label),
        *(
            words(UNDEFINED if each is None else f"{least}{_amount(each)}")
            for each in (expense.total, expense.per_bypass, expense.per_attack)
        ),
        words(f"{count_text(expense.known)}/{count_text(expense.calls)}"),
    )


def _service(seconds: float) -> str:
    if seconds >= 1:
        return f"{_amount(seconds)} s of service"
    return f"{value_text(1000 * seconds, Unit.MILLISECONDS)} of service"


def _amount(value: float) -> str:
    """Write an amount with three digits that count, whole numbers from 100 on."""
    if value >= 100 or value == int(value):
        return count_text(round(value))
    return f"{value:.3g}"


def effort_sentence(card: AdaptiveCard) -> str:
    """Say what a bypass costs in calls."""
    parts = []
    if (calls := card.costs.calls.per_bypass) is not None:
        cost = value_text(calls, Unit.COUNT)
        parts.append(
            f"{cost} calls of the attacker for each bypass, fixed list and probes included"
        )
    if more := cost_words(card):
        parts.append(more)
    if card.survival is not None:
        median = card.survival.median
        reached = (
            f"> {count_text(card.budget)} (not reached)" if median is None else f"{median:.0f}"
        )
        parts.append(f"median search tries to a bypass: {reached}")
    if card.mean_tries is not None and card.mean_tries.value is not None:
        parts.append(f"mean up to the budget: {card.mean_tries.value:.1f}")
    if card.reliability is not None:
        parts.append(f"a pass passed again: {measure_text(of_estimate(card.reliability))}")
    return f"{card.name}: {'; '.join(parts) or 'nothing to search for'}"


def calls_table(card: AdaptiveCard) -> Table:
    """Return the calls by arm and account."""
    return Table(
        id=f"adaptive-calls-{slug(card.name)}",
        title=f"{card.name}: calls by account",
        columns=columns("Arm and account", "Calls"),
        rows=tuple(row(f"{arm}: {account}", calls) for (arm, account), calls in card.calls.items()),
        note="The attacker pays for baseline, diagnosis, battery, search and confirm; twin, "
        "wrapper, repair, transfer and reworded benign texts are the evaluator's.",
        collapsed=True,
    )
