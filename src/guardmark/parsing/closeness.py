"""The words of a critic, read into a figure from 1 to 10; what is not understood is none."""

from __future__ import annotations

import math
from typing import Final

from guardmark.parsing.objects import read_object

LEAST: Final = 1.0
MOST: Final = 10.0


def read_closeness(text: str) -> float | None:
    """Read how close a candidate came."""
    said = (read_object(text, key="closeness").fields or {}).get("closeness")
    if isinstance(said, str):
        try:
            said = float(said)
        except ValueError:
            return None
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    # Compared before it becomes a float: an integer of a thousand digits does not fit one.
    return float(said) if LEAST <= said <= MOST and math.isfinite(said) else None
