"""Who attacks, with what knowledge: what every adaptive figure is conditional on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.adaptive.attacker_model import attacker_text
from guardmark.reports.chapters.adaptive.target_model import target_facts
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard


ACCESS: Final = {False: "A1 (sees allow or block)", True: "A2 (sees the score too)"}

KNOWLEDGE: Final = {
    True: "K1 (a kind of defense, diagnosed by probes)",
    False: "K0 (nothing; each attack sees its own answers)",
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
        ("Access", ACCESS[has_scores] + _gradient_access(card)),
        ("Knowledge", KNOWLEDGE[card.shares_memory]),
        ("Memory", _MEMORY[card.shares_memory]),
        ("Fixed list", f"{card.settings.get('battery', '')}{_lock(card)}"),
        ("Search calls", f"{count_text(card.budget)} for each attack"),
        ("Seed", str(card.settings.get("seed", "")) + _more_seeds(card)),
        ("Diagnosis", _diagnosis_text(card)),
        *(() if card.target is None else target_facts(card.target)),
        *(() if attacker is None else (("Attacker", attacker_text(attacker)),)),
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
