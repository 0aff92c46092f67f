"""What kind of defense this seems to be, by probes that see only allow or block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.catalogue import arm
from guardmark.attacks.chain import Chain
from guardmark.canon import canonicalize
from guardmark.engine.adaptive.trial import PROBE, Account, Query, together

if TYPE_CHECKING:
    from guardmark.engine.adaptive.scene import Scene
    from guardmark.engine.adaptive.trial import Answer, Steps

KEYWORD: Final = "keyword"
PATTERN: Final = "pattern"
STATISTICAL: Final = "lexical-statistical"
INTENT: Final = "intent"
FORMAT: Final = "format"
NONE: Final = "none"

_SHORT: Final = "The letter from the library mentions {} and the opening hours."
_LONG: Final = (
    "The garden club met on Tuesday afternoon and talked about tomatoes, watering cans, the price "
    "of seeds and the weather of the past month. Somebody read a note aloud which said {} and then "
    "everybody went on to choose a day for the summer picnic near the old mill, where there is "
    "shade and enough room for all the families and their bicycles."
)
_PLAIN: Final = "a list of books"
_ODD: Final = ("invisible", "homoglyph", "fullwidth", "accent", "zalgo")
_MOST_TARGETS: Final = 40
_MOST_PROBES: Final = 48
_SHUFFLES: Final = 3
_FEW_WORDS: Final = 4
_MANY_WORDS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the probes say of one blocked attack.

    Attributes:
        position: Of its sample.
        label: The kind.
        core: Words that are blocked still, in order.
        folds: Whether hidden characters within the words change nothing.
    """

    position: int
    label: str
    core: tuple[str, ...]
    folds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the probes say of a defense.

    Attributes:
        label: The kind seen most often; `none` where there is none to see.
        findings: One for each attack that was looked at.
        folds: Whether most say that hidden characters change nothing.
    """

    label: str
    findings: tuple[Finding, ...]
    folds: bool

    @property
    def shares(self) -> dict[str, float]:
        """Share of each label among the findings."""
        count = Counter(finding.label for finding in self.findings)
        return {label: n / len(self.findings) for label, n in sorted(count.items())}


def diagnose(scene: Scene) -> Steps[Diagnosis]:
    """Probe a defense with texts that are no attacks, and with pieces of blocked ones.

    Args:
        scene: After round 0. A defense that answers at random is not diagnosed.

    Returns:
        The kind it seems to be; a prior for the search and no verdict.
    """
    nothing = Diagnosis(label=NONE, findings=(), folds=False)
    if scene.is_random or not scene.samples:
        return nothing
    plain: list[Answer] = yield [_probe(0, carrier.format(_PLAIN)) for carrier in (_SHORT, _LONG)]
    if not all(answer.passed for answer in plain):
        return nothing
    odd = yield [_probe(0, text) for text in _odd_texts(scene)]
    if 2 * sum(answer.is_blocked is True for answer in odd) > len(odd):
        return Diagnosis(label=FORMAT, findings=(), folds=False)
    findings = yield from together([_examine(scene, place) for place in _chosen(scene)])
    if not findings:
        return nothing
    counts = Counter(finding.label for finding in findings)
    label = min(counts, key=lambda name: (-counts[name], name))
    folds = 2 * sum(finding.folds for finding in findings) > len(findings)
    return Diagnosis(label=label, findings=tuple(findings), folds=folds)


def _probe(place: int, text: str) -> Query:
    return Query(place, text, Account.DIAGNOSIS, "D", PROBE)


def _chosen(scene: Scene) -> list[int]:
    """Take a tenth of the blocked attacks, at least ten, spread over categories."""
    count = min(_MOST_TARGETS, max(10, len(scene.blocked) // 10), len(scene.blocked))
    by_category: dict[str, list[int]] = {}
    for place in scene.blocked:
        by_category.setdefault(scene.samples[place].category, []).append(place)
    draw = scene.draw("diagnosis")
    for places in by_category.values():
        draw.shuffle(places)
    taken: list[int] = []
    while len(taken) < count:
        for _, places in sorted(by_category.items()):
            if places and len(taken) < count:
                taken.append(places.pop())
    return sorted(taken)


def _odd_texts(scene: Scene) -> list[str]:
    text = _SHORT.format(_PLAIN)
    made = [
        apply(Chain.of(arm(name)), text, seed=seed_for(scene.seed, name, "carrier", 0))
        for name in _ODD
    ]
    return [each.text for each in made if each.is_variant]


def _examine(scene: Scene, place: int) -> Steps[Finding]:
    text = scene.samples[place].prompt.text
    words = text.split()
    if not words:
        return Finding(position=place, label=NONE, core=(), folds=False)
    core = yield from _shrink(place, words)
    joined = " ".join(core)
    draw = scene.draw("shuffle", scene.samples[place].id)
    shuffled = [" ".join(draw.sample(words, len(words))) for _ in range(_SHUFFLES)]
    hidden = scene.variant(
        place, Chain.of(arm("invisible")), index=0, account=Account.DIAGNOSIS, round_="D"
    )
    texts = [
        _SHORT.format(joined),
        _LONG.format(joined),
        " ".join(reversed(core)),
        canonicalize(text),
        text if hidden is None else hidden.text,
        *shuffled,
    ]
    said = yield [_probe(place, each) for each in texts]
    blocked = [answer.is_blocked is True for answer in said]
    label = _label(
        words,
        core,
        carried=(blocked[0], blocked[1]),
        is_blocked_reversed=blocked[2],
        shuffles=sum(blocked[5:]),
    )
    if not blocked[3] and text.isascii() is False:
        label = FORMAT
    return Finding(
        position=place, label=label, core=tuple(core), folds=hidden is not None and blocked[4]
    )


def _label(
    words: list[str],
    core: list[str],
    *,
    carried: tuple[bool, bool],
    is_blocked_reversed: bool,
    shuffles: int,
) -> str:
    """Name the kind from what survives transport, reordering and dilution."""
    if all(carried) and len(core) <= _FEW_WORDS:
        if len(core) == 1 or is_blocked_reversed or _adjacent(words, core):
            return KEYWORD
        return PATTERN
    if not shuffles:
        return PATTERN
    if len(core) >= max(_MANY_WORDS, len(words) // 2) and shuffles == _SHUFFLES:
        return INTENT if len(words) >= 2 * _MANY_WORDS and all(carried) else STATISTICAL
    return STATISTICAL


def _adjacent(words: list[str], core: list[str]) -> bool:
    return any(words[i : i + len(core)] == core for i in range(len(words)))


def _shrink(place: int, words: list[str]) -> Steps[list[str]]:
    """Take words away while the rest is blocked still (delta debugging)."""
    parts, spent = 2, 0
    while len(words) > 1 and spent < _MOST_PROBES:
        size = -(-len(words) // parts)
        cuts = [words[:start] + words[start + size :] for start in range(0, len(words), size)]
        cuts = [cut for cut in cuts if cut][: _MOST_PROBES - spent]
        answers = yield [_probe(place, " ".join(cut)) for cut in cuts]
        spent += len(cuts)
        smaller = next((c for c, a in zip(cuts, answers, strict=True) if a.is_blocked), None)
        if smaller is not None:
            words, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(words))
    return words
