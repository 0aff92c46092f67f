"""Which families to try first against a defense of a diagnosed type."""

from __future__ import annotations

from types import MappingProxyType

FAMILY_PRIOR = MappingProxyType(
    {
        "keyword": ("F12", "F8", "F3", "F4"),
        "pattern": ("F11", "F13"),
        "lexical-statistical": ("F12", "F13", "F11"),
        "intent": ("F9", "F10", "F11", "F14"),
        "format": ("F12", "F13", "F14"),
    }
)
"""Diagnosis to families, best first; F14 is the attacker model, which is no operator."""
