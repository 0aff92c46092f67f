"""Services that say that they changed a text, where the unchanged text went on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.scorecard import complement, estimate_errors
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.parsing.labels import says_changed

if TYPE_CHECKING:
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.core.estimate import Estimate
    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTexts:
    """A service that changed texts; its configuration counts that as allowed.

    Attributes:
        defense: Name of the defense.
        words: Its own words for it, such as MASKED.
        attacks: Attacks that it changed, of those it answered.
        benign: Benign samples that it changed, of those it answered.
    """

    defense: str
    words: tuple[str, ...]
    attacks: Estimate
    benign: Estimate


def find_changed_texts(reader: RecordReader, frame: Frame) -> tuple[ChangedTexts, ...]:
    """Find the services that changed texts and are counted as if they had allowed them."""
    found = []
    for arm in frame.arms:
        words = _words_for_changed(arm)
        if words and frame.weights is None:
            changed = _changed(reader, frame, arm, words)
            if changed is not None:
                found.append(changed)
    return tuple(found)


def _words_for_changed(arm: DefenseColumn) -> frozenset[str]:
    """Return the words of a service for a changed text that its configuration reads as allowed."""
    actions = arm.part.settings.get("actions")
    if not isinstance(actions, Mapping):
        return frozenset()
    return frozenset(
        word for word, meaning in actions.items() if meaning == "allow" and says_changed(word)
    )


def _changed(
    reader: RecordReader, frame: Frame, arm: DefenseColumn, words: frozenset[str]
) -> ChangedTexts | None:
    """Count the samples whose answer says one of the words, or None where no answer does."""
    seen, places = set[str](), []
    for record in reader.records(defense=arm.name, stage=Stage.DEFENSE):
        if record.evidence is not None and record.evidence.native_action in words:
            seen.add(record.evidence.native_action)
            places.append(record.key.repeat * frame.sample_count + record.key.sample)
    if not places:
        return None
    records = arm.records
    own = records.repeat.astype(np.int64) * frame.sample_count + records.sample
    marks = np.isin(own, places)
    rates = estimate_errors(frame, arm, blocked=marks, trials=arm.is_answered)
    return ChangedTexts(
        defense=arm.name,
        words=tuple(sorted(seen)),
        attacks=complement(rates.attack_success_rate),
        benign=rates.false_positive_rate,
    )
