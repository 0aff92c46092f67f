"""Round 0: what the defense says of the texts as they are, and whether it says it twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.questions import Account, Query

if TYPE_CHECKING:
    from guardmark.adaptive.questions import Steps, TryAnswer
    from guardmark.adaptive.state import SearchState

RANDOMISED: Final = "RANDOMISED"
ERRORS_AS_BLOCK: Final = "ERRORS_AS_BLOCK"
STATEFUL: Final = "STATEFUL"
_SUBSAMPLE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What round 0 found."""

    flags: tuple[str, ...]
    missing: int


def measure_baseline(scene: SearchState) -> Steps[Baseline]:
    """Ask about every text as it is, and about some of them again."""
    places = range(len(scene.samples))
    first = yield [_plain(scene, place, "R0") for place in places]
    some = _subsample(scene, first)
    second = yield [_plain(scene, place, "R0.2", is_again=True) for place in some]
    third = yield [_plain(scene, place, "R0.3", is_again=True) for place in some]
    turned = yield [_plain(scene, place, "R0.reverse", is_again=True) for place in reversed(some)]
    flags = []
    same = [[first[place].is_blocked for place in some]]
    same += [[answer.is_blocked for answer in answers] for answers in (second, third)]
    backwards = [answer.is_blocked for answer in reversed(turned)]
    if _differ(same):
        flags.append(RANDOMISED)
    elif _differ([same[0], backwards]):
        flags.append(STATEFUL)
    if any(answer.is_complaint for answer in first):
        flags.append(ERRORS_AS_BLOCK)
    attacks = [place for place in places if scene.samples[place].is_attack]
    scene.blocked = tuple(place for place in attacks if first[place].is_blocked)
    scene.passed = tuple(place for place in attacks if first[place].passed)
    benign = [place for place in places if not scene.samples[place].is_attack]
    scene.benign = tuple(place for place in benign if first[place].is_blocked is not None)
    scene.quiet = tuple(place for place in benign if first[place].passed)
    scene.is_random = bool({RANDOMISED, STATEFUL} & set(flags))
    scene.has_scores = any(answer.score is not None for answer in first)
    missing = len(attacks) - len(scene.blocked) - len(scene.passed)
    return Baseline(flags=tuple(flags), missing=missing)


def _plain(scene: SearchState, place: int, round_: str, *, is_again: bool = False) -> Query:
    text = scene.samples[place].prompt.text
    return Query(place, text, Account.BASELINE, round_, is_again=is_again)


def _subsample(scene: SearchState, first: list[TryAnswer]) -> list[int]:
    """Take some of the blocked and some of the passed, in the order of the data."""
    draw = scene.draw("baseline")
    taken: list[int] = []
    for wanted in (True, False):
        places = [place for place, answer in enumerate(first) if answer.is_blocked is wanted]
        taken += draw.sample(places, min(len(places), _SUBSAMPLE // 2))
    return sorted(taken)


def _differ(passes: list[list[bool | None]]) -> bool:
    """Tell whether a sample got two different answers; a missing one is no answer."""
    return any(
        len({said for said in answers if said is not None}) > 1
        for answers in zip(*passes, strict=True)
    )
