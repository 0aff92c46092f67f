"""One versioned canonical form of a text, used by attacks, by their checks and as a repair."""

from __future__ import annotations

from guardmark.canon.steps import (
    CANON_STEPS,
    CANON_VERSION,
    REPAIR_STEPS,
    Step,
    apply_steps,
    canonicalize,
    skeleton,
    tables_digest,
)

__all__ = [
    "CANON_STEPS",
    "CANON_VERSION",
    "REPAIR_STEPS",
    "Step",
    "apply_steps",
    "canonicalize",
    "skeleton",
    "tables_digest",
]
