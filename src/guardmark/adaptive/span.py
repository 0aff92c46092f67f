"""Which part of a text a defense seems to look at."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.questions import PROBE, Account, Query

if TYPE_CHECKING:
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.questions import Steps
    from guardmark.adaptive.state import SearchState, Target

Span = tuple[int, int]

_WORD: Final = re.compile(r"\w+")
_PIECES: Final = 6
_TRIGGERS: Final = 200


def spans_of(
    scene: SearchState, targets: list[Target], diagnosis: Diagnosis
) -> Steps[dict[int, list[Span]]]:
    """Find for each attack the parts worth changing, the most promising first.

    With scores, pieces are left out in turn and the one whose loss lowers the score most is
    taken: these probes are paid from the attack's own budget and are no attacks. Without, the
    words that diagnosis found stand for those of attacks it did not look at.
    """
    count = Counter(
        word.casefold()
        for finding in diagnosis.findings
        for text in finding.core
        for word in _WORD.findall(text)
    )
    triggers = frozenset(word for word, _ in count.most_common(_TRIGGERS))
    spans: dict[int, list[Span]] = {}
    for target in targets:
        text = target.sample.prompt.text
        spans[target.position] = _of_triggers(text, triggers) + _quarters(text)
    if scene.has_scores:
        yield from _by_score(scene, targets, spans)
    return spans


def _of_triggers(text: str, triggers: frozenset[str]) -> list[Span]:
    """Return each word that is known to matter, and the stretch from first to last."""
    found = [
        (word.start(), word.end())
        for word in _WORD.finditer(text)
        if word.group().casefold() in triggers
    ]
    if len(found) > 1:
        found.insert(0, (found[0][0], found[-1][1]))
    return found[:_PIECES]


def _quarters(text: str) -> list[Span]:
    size = max(1, -(-len(text) // 4))
    return [(start, min(start + size, len(text))) for start in range(0, len(text), size)]


def _by_score(
    scene: SearchState, targets: list[Target], spans: dict[int, list[Span]]
) -> Steps[None]:
    asked: list[tuple[Target, Span]] = []
    batch: list[Query] = []
    for target in targets:
        if scene.budget - target.tries <= 2 * _PIECES:
            continue
        text = target.sample.prompt.text
        size = max(1, -(-len(text) // _PIECES))
        for start in range(0, len(text), size):
            rest = text[:start] + text[start + size :]
            if rest.strip():
                asked.append((target, (start, min(start + size, len(text)))))
                layer = scene.layer()
                batch.append(Query(target.position, rest, Account.SEARCH, "R4", PROBE, layer=layer))
                target.tries += 1
    answers = yield batch
    lowest: dict[int, tuple[float, Span]] = {}
    for (target, span), answer in zip(asked, answers, strict=True):
        if answer.score is None:
            continue
        before = lowest.get(target.position)
        if before is None or answer.score < before[0]:
            lowest[target.position] = (answer.score, span)
    for position, (_, span) in lowest.items():
        spans[position].insert(0, span)
