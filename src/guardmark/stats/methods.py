"""Names of interval methods that a reader of estimates has to tell apart."""

from __future__ import annotations

from typing import Final

GROUP_WEIGHTED: Final = "betting sequence, group-weighted"
"""The interval is one of the mean of groups, each of the same weight, not of the row rate."""
