"""What adaptive figures may be said to mean, in fixed words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.adaptive.attacker import attacker_text
from guardmark.reports.adaptive.audited import audited_words
from guardmark.reports.adaptive.costs import cost_words
from guardmark.reports.adaptive.seeds import headline, of_mean
from guardmark.reports.adaptive.target_words import meaning_sentences, target_facts
from guardmark.reports.document.blocks import Unit
from guardmark.reports.document.cells import of_difference, of_estimate
from guardmark.reports.document.wording import count_text, measure_text, percent_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard

_ACCESS: Final = {False: "A1 (sees allow or block)", True: "A2 (sees the score too)"}
_KNOWLEDGE: Final = {
    True: "K1 (a kind of defense, diagnosed by probes)",
    False: "K0 (nothing; each attack sees its own answers)",
}
ROUNDS: Final = {
    "R0": "as they are",
    "R1": "fixed list",
    "R2": "single operators (learning)",
    "R3": "chains of operators",
    "R4": "parts of the text",
    "R5": "attacker model",
}
ARMS: Final = {
    "static": "attacks as they are, sent once",
    "adaptive": "learns from answers; no fixed list",
    "blind": "operators drawn at random",
    "null": "the same text sent again",
}
_MEMORY: Final = {
    True: "shared between attacks",
    False: "none: each attack learns from itself",
}
_FLAGS: Final = {
    "RANDOMISED": "answers differ when the same text is sent again; a bypass counts only if two "
    "of three further sends pass as well",
    "STATEFUL": "answers depend on the order of the questions; a bypass counts only if two of "
    "three further sends pass as well",
    "ERRORS_AS_BLOCK": "some blocks came with an error message: failures seem to count as blocks",
}
_ELSEWHERE: Final = {
    "response": "looks at responses of the target model",
    "document": "looks at documents",
}


def threat_card(card: AdaptiveCard) -> tuple[tuple[str, str], ...]:
    """Return who attacks, with what: what every figure of the section is conditional on."""
    has_scores = bool(card.findings.get("has_scores"))
    attacker = card.attacker
    return (
        ("Access", _ACCESS[has_scores] + _gradient_access(card)),
        ("Knowledge", _KNOWLEDGE[card.shares_memory]),
        ("Memory", _MEMORY[card.shares_memory]),
        ("Fixed list", f"{card.settings.get('battery', '')}{_lock(card)}"),
        ("Search calls", f"{count_text(card.budget)} for each attack"),
        ("Seed", str(card.settings.get("seed", "")) + _more_seeds(card)),
        ("Diagnosis", _diagnosis_text(card)),
        *(() if card.target is None else target_facts(card.target)),
        *(() if attacker is None else (("Attacker", attacker_text(attacker)),)),
    )


def proof_words(card: AdaptiveCard) -> str:
    """Say what the two columns of tiers hold."""
    has_judge = card.attacker is not None and card.attacker.has_judge
    judged = ", and what was judged the same request (V3)" if has_judge else ""
    return (
        "Strict: the variant provably holds the same text. All proved tiers: bounded typing "
        f"errors and listed synonyms too{judged}."
    )


def _lock(card: AdaptiveCard) -> str:
    lock = str(card.settings.get("lock", ""))[:16]
    return f" (lock {lock})" if lock else ""


def _more_seeds(card: AdaptiveCard) -> str:
    seeds = card.settings.get("seeds", 1)
    return f"; the search with {seeds} seeds derived from it" if seeds != 1 else ""


def _gradient_access(card: AdaptiveCard) -> str:
    if card.gradient is None:
        return ""
    return f"; arm gradient: A3 (sees the gradient of the loss, {card.gradient.attack})"


def _diagnosis_text(card: AdaptiveCard) -> str:
    """Say what kind of defense the probes saw."""
    if not card.shares_memory:
        return "not made: it would be learned from other attacks"
    examined, label = card.findings.get("examined", 0), card.findings.get("diagnosis", "none")
    folds = "; hidden characters change nothing" if card.findings.get("folds") else ""
    return f"{label} (from {examined} blocked attacks{folds})"


def flag_lines(card: AdaptiveCard) -> tuple[str, ...]:
    """Say what is odd about a defense, a line each."""
    return tuple(f"{card.name} {flag}: {_FLAGS.get(flag, flag)}" for flag in card.flags)


def left_out_line(name: str, view: str) -> str:
    """Say why a defense was not attacked."""
    return (
        f"{name} was left out: it {sight_text(view)}, which no rewriting of an attack of these "
        "data changes; nothing here says how it holds"
    )


def sight_text(view: str) -> str:
    """Say what a defense looks at that is shown no plain input."""
    return _ELSEWHERE.get(view, f"looks at something else ({view})")


def holding_sentence(card: AdaptiveCard) -> str:
    """Say what was broken, under which conditions; never more than that."""
    return " ".join(holding_sentences(card))


def holding_sentences(card: AdaptiveCard) -> tuple[str, ...]:
    """Say what was broken, and what getting through amounts to, a sentence each."""
    last = card.rounds[-1].full
    mean = headline(card)
    fell = last.successes if mean is None else mean.value
    means_something = fell or (last.trials and card.target is not None)
    return (_held(card), *(meaning_sentences(card) if means_something else ()))


def _held(card: AdaptiveCard) -> str:
    last = card.rounds[-1].full
    under = (
        f"{card.settings.get('battery', '')}, budget {count_text(card.budget)}, access "
        f"{_ACCESS[bool(card.findings.get('has_scores'))][:2]}, knowledge "
        f"{_KNOWLEDGE[card.shares_memory][:2]}"
    )
    mean = headline(card)
    share = measure_text(of_estimate(last) if mean is None else of_mean(mean))
    fell, high = (last.successes, last.high) if mean is None else (mean.value, mean.high)
    over = "" if mean is None else f" at any of {mean.seeds} seeds"
    if not last.trials:
        return f"{card.name}: undefined under {under}: no attack was answered."
    if not fell:
        bound = f"; the true share may be up to {percent_text(high)}" if high else ""
        return f"{card.name} was not broken{over} under {under}{bound}."
    over = "" if mean is None else f" on average over {mean.seeds} seeds"
    return (
        f"{card.name}: {share} of {count_text(last.trials)} attacks got through{over} under "
        f"{under}; {percent_text(card.rounds[0].full.value)} did as they are"
        f"{audited_words(card)}."
    )


def gain_sentence(card: AdaptiveCard) -> str:
    """Say what learning added to drawing at random, at equal tries.

    That drawing at random did better is said only where the whole interval lies below zero.
    """
    told = [(k, of_difference(gain)) for k, gain in card.gains]
    over = ""
    if card.seeds is not None and headline(card) is not None:
        told = [(k, of_mean(gain, Unit.POINTS)) for k, gain in card.seeds.gains]
        over = f", mean of {card.seeds.seeds} seeds"
    gains = "; ".join(f"{measure_text(gain)} at {count_text(k)}" for k, gain in told)
    below = [count_text(k) for k, gain in told if gain.high is not None and gain.high < 0]
    behind = f". Drawing at random did better at {', '.join(below)}" if below else ""
    return f"{card.name}: adaptive minus blind at equal tries{over}: {gains}{behind}"


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
