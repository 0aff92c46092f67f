"""What people say of bypasses that rest on a judgement: in words, and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.encode import Json, estimate_json, ratio_json

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.audited import AuditCard, AuditedRound


def audit_json(audit: AuditCard | None) -> Json | None:
    """Encode what people said."""
    if audit is None:
        return None
    return {
        "source": audit.source,
        "resting": audit.resting,
        "drawn": audit.drawn,
        "valid": estimate_json(audit.valid),
        "unsure": audit.unsure,
        "blank": audit.blank,
        "least": audit.least,
        "most": audit.most,
        "tiers": [{"tier": tier, "valid": estimate_json(rate)} for tier, rate in audit.tiers],
        "rounds": [_round(each) for each in audit.rounds],
    }


def _round(each: AuditedRound) -> Json:
    return {
        "round": each.name,
        "resting": each.resting,
        "valid": estimate_json(each.valid),
        "full": ratio_json(each.full),
    }
