"""The words for what the data carries about two defenses."""

from __future__ import annotations

from enum import StrEnum


class PairVerdict(StrEnum):
    """What the data carries about two defenses."""

    FIRST_BETTER = "first better"
    SECOND_BETTER = "second better"
    TRADE_OFF = "trade-off"
    FIRST_FEWER_BYPASSES = "first fewer bypasses"
    SECOND_FEWER_BYPASSES = "second fewer bypasses"
    FIRST_FEWER_FALSE_ALARMS = "first fewer false alarms"
    SECOND_FEWER_FALSE_ALARMS = "second fewer false alarms"
    UNDECIDED = "undecided"
