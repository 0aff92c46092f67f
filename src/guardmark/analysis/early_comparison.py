"""Comparisons with a defense that a rule ended early."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guardmark.analysis.comparison import PairedSide
    from guardmark.analysis.frame import Frame


def hold_at_any_look(
    frame: Frame, side: PairedSide, *, names: tuple[str, str], is_attack: bool
) -> PairedSide:
    """Put an interval and a test that hold at any look where a rule ended a defense early.

    Args:
        frame: The run.
        side: The comparison as for a run of fixed size.
        names: First and second defense.
        is_attack: Which samples it is about.

    Returns:
        The same where neither defense was ended early. Otherwise no smallest detectable
        difference and no test of a margin is left: both suppose a size fixed beforehand.
    """
    ended = any(frame.stopped(arm) for arm in frame.arms if arm.name in names)
    if frame.stops is None or not ended:
        return side
    difference = frame.stops.difference(*names, is_attack=is_attack)
    return replace(
        side,
        difference=difference,
        adjusted_p=difference.p_value,
        detectable=None,
        not_worse=None,
    )
