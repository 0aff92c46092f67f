"""A guard of ten lines: true blocks."""

from __future__ import annotations

ORDERS = ("ignore", "disregard", "forget", "override")
THINGS = ("instruction", "rule", "prompt", "guideline")


def flags(text: str) -> bool:
    """Block what gives an order about orders."""
    words = text.lower()
    return any(each in words for each in ORDERS) and any(each in words for each in THINGS)
