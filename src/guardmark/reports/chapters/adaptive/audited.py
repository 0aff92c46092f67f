"""What people say of bypasses that rest on a judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.cells import of_estimate, of_ratio, rate_text
from guardmark.reports.document.wording import count_text, measure_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.audited import AuditCard
    from guardmark.analysis.adaptive.card import AdaptiveCard, RoundRate
    from guardmark.reports.document.blocks import FigureCell


AUDITED = "Audited"
"""Head of the column beside `All proved tiers`."""


AUDIT_NOTE = (
    " Audited: the rate of all proved tiers, its part that rests on a judge or a table (V3, "
    "V3-table) times the share that people call the same request; its interval holds the "
    "uncertainty of both (parametric bootstrap, seeded)."
)


def audited_measure(card: AdaptiveCard, each: RoundRate) -> FigureCell:
    """Return what is shown of a round beside the rate of all proved tiers."""
    found = None if card.audit is None else card.audit.of(each.name)
    return of_estimate(each.full) if found is None else of_ratio(found.full)


def audit_sentence(card: AdaptiveCard) -> str:
    """Say what people found, and what that leaves of the rate; empty without a sheet."""
    audit = card.audit
    if audit is None:
        return ""
    if not audit.drawn:
        return f"{card.name}: nothing rests on a judgement any more, so the audit tells nothing"
    last = audit.rounds[-1]
    return (
        f"{card.name}: people call {rate_text(audit.valid)} of the audited bypasses the same "
        f"request ({count_text(audit.drawn)} drawn of {count_text(audit.resting)} that rest on a "
        f"judgement or a table{_open_words(audit)}); so the audited rate at the end is "
        f"{measure_text(of_ratio(last.full))}"
    )


def audited_words(card: AdaptiveCard) -> str:
    """Say what an audit leaves of the last rate, for the end of a sentence; empty without one."""
    if card.audit is None or not card.audit.rounds:
        return ""
    return f"; {measure_text(of_ratio(card.audit.rounds[-1].full))} as far as people confirm it"


def _open_words(audit: AuditCard) -> str:
    """Name what is not answered, and how far it could move the share."""
    if not audit.unsure + audit.blank or audit.least is None or audit.most is None:
        return ""
    return (
        f"; {count_text(audit.unsure)} unsure and {count_text(audit.blank)} blank count in no "
        f"rate: with them the share lies between {percent_text(audit.least)} and "
        f"{percent_text(audit.most)}"
    )


def resting_sentence(card: AdaptiveCard) -> str:
    """Say how many bypasses rest on a judgement that nobody audited; empty without any."""
    if card.audit is not None or not card.resting:
        return ""
    return (
        f"{card.name}: {count_text(card.resting)} of the attacks that got through rest on a "
        "judgement or a table (V3, V3-table) that nobody audited; to audit them: "
        "guardmark audit RUN --what bypasses"
    )
