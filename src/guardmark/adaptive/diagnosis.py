"""Round 0 and the diagnosis: what a defense makes of texts as they are, and why it blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from guardmark.adaptive import probes
from guardmark.adaptive.probes import GAP, NONE, Surroundings, carriers, filled
from guardmark.adaptive.state import PROBE, Account, Query, together
from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.catalogue import arm
from guardmark.attacks.contract import OperatorChain
from guardmark.attacks.operators.structure import filler
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.adaptive.state import SearchState, Steps, TryAnswer


RANDOMISED: Final = "RANDOMISED"
ERRORS_AS_BLOCK: Final = "ERRORS_AS_BLOCK"
STATEFUL: Final = "STATEFUL"
RATE_LIMITED: Final = "RATE_LIMITED"
_SUBSAMPLE: Final = 60
_ROW: Final = 30  # calls one after the other about one text, to see a rhythm in its answers
_NEW: Final = 10  # texts that were never sent, made of harmless ones
_RHYTHM: Final = 3  # passes, all as far from each other, that are one


def measure_baseline(state: SearchState) -> Steps[list[str]]:
    """Ask about every text as it is, and about some of them again; return the flags."""
    batch = []
    for position, sample in enumerate(state.samples):
        batch.append(Query(position, sample.prompt.text, Account.BASELINE, "R0"))
    first = yield batch
    some = _subsample(state, first)
    second = yield [state.plain(index, Account.BASELINE, "R0.2") for index in some]
    third = yield [state.plain(index, Account.BASELINE, "R0.3") for index in some]
    turned = yield [state.plain(index, Account.BASELINE, "R0.reverse") for index in some[::-1]]
    passes = [[first[index] for index in some], second, third, turned[::-1]]
    flags = []
    if _changes(some, passes):
        unsteady = yield from _unsteady(state, some, passes)
        flags.append(unsteady)
    if any(answer.is_complaint for answer in first):
        flags.append(ERRORS_AS_BLOCK)
    state.is_random = not {RANDOMISED, STATEFUL, RATE_LIMITED}.isdisjoint(flags)
    _sort_samples(state, first)
    return flags


def _sort_samples(state: SearchState, answers: Sequence[TryAnswer]) -> None:
    """Note which attacks were blocked, which benign texts passed, and the scores."""
    blocked, benign, quiet = list[int](), list[int](), list[int]()
    scores: dict[int, float] = {}
    allowed_score = 0.0
    for position, answer in enumerate(answers):
        if answer.score is not None:
            scores[position] = answer.score
            if answer.passed:
                allowed_score = max(allowed_score, answer.score)
        if answer.is_blocked is None:
            continue
        if not state.samples[position].is_attack:
            benign.append(position)
            if answer.passed:
                quiet.append(position)
        elif answer.is_blocked:
            blocked.append(position)
    state.blocked, state.benign, state.quiet = tuple(blocked), tuple(benign), tuple(quiet)
    state.scores, state.allowed_score = scores, allowed_score


def _subsample(state: SearchState, first: list[TryAnswer]) -> list[int]:
    """Take some of the blocked and some of the passed, in the order of the data."""
    blocked, passed = list[int](), list[int]()
    for index, answer in enumerate(first):
        if answer.is_blocked:
            blocked.append(index)
        elif answer.passed:
            passed.append(index)
    draw, most = state.draw("baseline"), _SUBSAMPLE // 2
    chosen = draw.sample(blocked, min(len(blocked), most))
    chosen += draw.sample(passed, min(len(passed), most))
    return sorted(chosen)


def _changes(some: list[int], passes: list[list[TryAnswer]]) -> dict[int, list[bool]]:
    """Return whether a sample passed, time after time, where that differs; failures don't count."""
    changes = {}
    for index, answers in zip(some, zip(*passes, strict=True), strict=True):
        marks = [answer.passed for answer in answers if answer.is_blocked is not None]
        if len(set(marks)) > 1:
            changes[index] = marks
    return changes


def _unsteady(state: SearchState, some: list[int], passes: list[list[TryAnswer]]) -> Steps[str]:
    """Tell chance from a limit on calls, and from answers that depend on the calls before.

    A limit turns texts away that were never sent; memory knows only what was sent.
    """
    changes = _changes(some, passes)
    is_falling = is_rising = True
    for marks in changes.values():
        is_falling = is_falling and marks == sorted(marks, reverse=True)
        is_rising = is_rising and marks == sorted(marks)
    if is_falling:
        is_limited = yield from _turns_new_texts_away(state, some, passes[0])
        if is_limited:
            return RATE_LIMITED
    elif not _changes(some, passes[:-1]):
        return STATEFUL
    index = min(changes)
    row: list[bool] = []
    for _ in range(_ROW):
        (answer,) = yield [state.plain(index, Account.BASELINE, "R0.row")]
        row.append(answer.passed)
    if _has_rhythm(row):
        return STATEFUL
    if is_falling and not any(row):
        return STATEFUL
    if not is_falling and is_rising and all(row):
        return STATEFUL
    return RANDOMISED


def _turns_new_texts_away(
    state: SearchState, some: list[int], first: list[TryAnswer]
) -> Steps[bool]:
    """Ask about texts that were never sent, made of harmless ones; tell whether all are blocked."""
    texts: list[str] = []
    for sample, answer in zip(some, first, strict=True):
        if answer.passed and len(texts) < _NEW:
            texts.append(state.samples[sample].prompt.text)
    new = [f"{text} {other}" for text, other in zip(texts, reversed(texts), strict=True)]
    new += carriers("everyday")
    answers = yield [Query(0, text, Account.BASELINE, "R0.new", PROBE) for text in new]
    return bool(texts) and all(answer.is_blocked for answer in answers)


def _has_rhythm(row: Sequence[bool]) -> bool:
    """Tell whether every n-th text passes, with n above 1."""
    passes = [number for number, passed in enumerate(row) if passed]
    if len(passes) < _RHYTHM:
        return False
    distance = passes[1] - passes[0]
    for before, after in pairwise(passes):
        if after - before != distance:
            return False
    return distance > 1


_SIZES: Final = (400, 200, 100)  # words of harmless text, in which weak evidence drowns
_SMALL_SIZES: Final = (40, 20)
_LEAST_VALUES: Final = 8  # different scores that no list of rules gives
_PLAIN: Final = "a list of books"
_ODD: Final = ("invisible", "homoglyph", "fullwidth", "accent", "zalgo")
_INVISIBLE: Final = OperatorChain.of(arm("invisible"))
_FILLER_DRAWS: Final = bytes(range(0, 256, 7))
_MOST_TARGETS: Final = 40
_MOST_PROBES: Final = 48
_LEAST_CARRIERS: Final = 2  # that pass: one may by chance
_SHUFFLES: Final = 3
_CLOSED: Final = 0.75  # share of everyday texts that a list of allowed forms blocks
OWN: Final = -1  # position of a harmless text that is in no data


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What the probes say of one blocked attack, or of a harmless text of ours.

    Attributes:
        position: Which sample, or `OWN`.
        label: What kind of defense it points to.
        core: The words that are blocked still when the others are taken away.
        signs: Whether the defense shows each sign that was looked for.
    """

    position: int
    label: str
    core: tuple[str, ...]
    signs: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the probes say of a defense.

    Attributes:
        label: What kind of defense most findings point to.
        findings: What each probed text says.
        folds: Whether the defense reads hidden and unusual characters as plain ones.
        is_gated: Whether unusual characters are turned away, whatever they say.
    """

    label: str
    findings: tuple[ProbeResult, ...]
    folds: bool
    is_gated: bool = False

    def core_of(self, position: int) -> tuple[str, ...]:
        """Return the words of an attack that are blocked still; empty where nobody looked."""
        for finding in self.findings:
            if finding.position == position:
                return finding.core
        return ()

    @property
    def signs(self) -> dict[str, list[int]]:
        """How many attacks show each sign, and on how many it was looked for."""
        seen, shown = Counter[str](), Counter[str]()
        for finding in self.findings:
            for name, is_shown in finding.signs.items():
                seen[name] += 1
                shown[name] += is_shown
        return {name: [shown[name], seen[name]] for name in sorted(seen)}

    @property
    def shares(self) -> dict[str, float]:
        """Share of each label among the findings."""
        counts = Counter(finding.label for finding in self.findings)
        return {label: count / len(self.findings) for label, count in sorted(counts.items())}


UNKNOWN: Final = Diagnosis(label=NONE, findings=(), folds=False)


def diagnose(state: SearchState) -> Steps[Diagnosis]:
    """Probe a defense with texts that are no attacks, and with pieces of blocked ones."""
    if state.is_random or not state.samples:
        return UNKNOWN
    around = yield from _surroundings(state)
    if state.quiet and (around is None or around.is_rare):
        closed = yield from _allows_listed_forms()
        if closed is not None:
            return closed
    if around is None:
        return UNKNOWN
    odd = yield [_probe(0, text) for text in _odd_texts(state, around.short)]
    disliked = [answer for answer in odd if answer.is_blocked]
    is_gated = 2 * len(disliked) > len(odd)
    around = replace(around, dislikes_odd=bool(disliked), is_gated=is_gated)
    findings = yield from together([_examine(state, index, around) for index in _chosen(state)])
    if not findings and is_gated:
        return replace(UNKNOWN, label=probes.FORMAT)
    if not findings:
        return UNKNOWN
    counts = Counter[str]()
    folding = 0
    for finding in findings:
        counts[finding.label] += 1
        if finding.signs.get(probes.CANONICALISER, False):
            folding += 1
    label = min(counts, key=lambda name: (-counts[name], name))
    folds = 2 * folding > len(findings)
    return Diagnosis(label=label, findings=tuple(findings), folds=folds, is_gated=is_gated)


def _allows_listed_forms() -> Steps[Diagnosis | None]:
    """Ask about everyday texts; where most are blocked, only forms on a list are allowed."""
    answers = yield [_probe(0, text) for text in carriers("everyday")]
    findings, blocked = [], 0
    for answer in answers:
        label = NONE
        if answer.is_blocked:
            label = probes.ALLOW_LIST
            blocked += 1
        findings.append(ProbeResult(position=OWN, label=label, core=()))
    if blocked < _CLOSED * len(findings):
        return None
    return replace(UNKNOWN, label=probes.ALLOW_LIST, findings=tuple(findings))


def _probe(index: int, text: str) -> Query:
    return Query(index, text, Account.DIAGNOSIS, "D", PROBE)


def _chosen(state: SearchState) -> list[int]:
    """Take a tenth of the blocked attacks, at least ten, spread over categories."""
    count = min(_MOST_TARGETS, max(10, len(state.blocked) // 10), len(state.blocked))
    order = state.draw("diagnosis").sample(state.blocked, len(state.blocked))
    seen, rank_of = Counter[str](), dict[int, int]()
    for index in order:
        category = state.samples[index].category
        seen[category] += 1
        rank_of[index] = seen[category]
    first_of_each = sorted(order, key=rank_of.__getitem__)
    return sorted(first_of_each[:count])


def _surroundings(state: SearchState) -> Steps[Surroundings | None]:
    """Look for harmless text that passes: ours, or that of the run; None without any."""
    benign = _harmless(state)
    fillers = [filler(_FILLER_DRAWS, size) for size in _SIZES]
    shorts, longs = list(carriers("short")), list(carriers("long"))
    ours = {filled(carrier, _PLAIN) for carrier in shorts + longs}
    ours.update(fillers)
    # The first texts of the run go into carriers of their own, the rest into long texts.
    for text in benign[:3]:
        shorts.append(f"{text} {GAP}")
    for start in (3, 6):
        if benign[start:]:
            longs.append(f"{' '.join(benign[start : start + 3])} {GAP}")
    rest = " ".join(benign[9:]).split()
    vast = [" ".join(rest[:size]) for size in _SIZES if len(rest) >= size]
    vast += fillers
    texts = [filled(carrier, _PLAIN) for carrier in shorts + longs] + vast
    passed, blocked = yield from _sorted_out(texts)
    is_rare = 2 * len(blocked & ours) > len(ours)
    shorts = [carrier for carrier in shorts if filled(carrier, _PLAIN) in passed]
    longs = [carrier for carrier in longs if filled(carrier, _PLAIN) in passed]
    vast = [text for text in vast if text in passed]
    if not shorts or len(shorts + longs) < _LEAST_CARRIERS:
        return None
    if not vast:  # where long texts are blocked, shorter ones show the beginning from the end, too
        vast = [filler(_FILLER_DRAWS, size) for size in _SMALL_SIZES]
        passed, _ = yield from _sorted_out(vast)
        vast = [text for text in vast if text in passed]
    most = max(vast, key=lambda text: len(text.split()), default="")
    return Surroundings(short=shorts[0], long=(longs or shorts)[0], vast=most, is_rare=is_rare)


def _sorted_out(texts: Sequence[str]) -> Steps[tuple[set[str], set[str]]]:
    """Ask about harmless texts; return those that pass, and those that are blocked."""
    answers: list[TryAnswer] = yield [_probe(0, text) for text in texts]
    passed, blocked = set[str](), set[str]()
    for text, answer in zip(texts, answers, strict=True):
        if answer.passed:
            passed.add(text)
        elif answer.is_blocked:
            blocked.add(text)
    return passed, blocked


def _harmless(state: SearchState) -> list[str]:
    """Return benign texts that passed, enough to fill several gaps."""
    texts = []
    for index in state.quiet:
        text = state.samples[index].prompt.text
        if text.isascii() and GAP not in text:
            texts.append(text)
    chosen, words = [], 0
    for text in state.draw("harmless").sample(texts, len(texts)):
        if words >= 2 * _SIZES[0]:
            break
        chosen.append(text)
        words += len(text.split())
    return chosen


def _odd_texts(state: SearchState, carrier: str) -> list[str]:
    text = filled(carrier, _PLAIN)
    odd = []
    for name in _ODD:
        seed = seed_for(state.seed, name, "carrier", 0)
        made = apply(OperatorChain.of(arm(name)), text, seed=seed)
        if made.is_variant:
            odd.append(made.text)
    return odd


def _examine(state: SearchState, index: int, around: Surroundings) -> Steps[ProbeResult]:
    """Find out why one attack is blocked: by which words, and in which form."""
    text = state.samples[index].prompt.text
    words = text.split()
    if not words:
        return ProbeResult(position=index, label=NONE, core=())
    carrier = GAP
    if around.is_gated:  # what is left of a text must pass the gate, or the gate would be examined
        (carried,) = yield [_probe(index, filled(around.short, text))]
        if carried.is_blocked:
            carrier = around.short
    core = yield from _shrink(index, words, carrier)
    draw = state.draw("shuffle", state.samples[index].id)
    shuffled = [" ".join(draw.sample(words, len(words))) for _ in range(_SHUFFLES)]
    texts = probes.probes_of(text, core, around, carrier)
    hidden = state.variant(index, _INVISIBLE, "D", account=Account.DIAGNOSIS)
    if hidden is not None and not around.is_gated:
        texts["hidden"] = hidden.text
    replies = yield [_probe(index, each) for each in (*texts.values(), *shuffled)]
    blocked = {name: replies[i].is_blocked is True for i, name in enumerate(texts)}
    blocked["shuffled"] = all(each.is_blocked for each in replies[len(texts) :])
    is_odd = not text.isascii()
    if around.is_gated:
        is_odd = blocked["shuffled"]
    is_graded = len({answer.score for answer in replies} - {None}) >= _LEAST_VALUES
    label = probes.label_of(words, core, blocked, graded=is_graded, carried=carrier != GAP)
    if around.dislikes_odd and is_odd and not blocked["canonical"]:
        label = probes.FORMAT
    signs = probes.signs_of(blocked)
    return ProbeResult(position=index, label=label, core=tuple(core), signs=signs)


def _shrink(index: int, words: list[str], carrier: str) -> Steps[list[str]]:
    """Take words away while the rest is blocked still (delta debugging)."""
    parts, spent = 2, 0
    while len(words) > 1 and spent < _MOST_PROBES:
        size = -(-len(words) // parts)
        cuts = [words[:start] + words[start + size :] for start in range(0, len(words), size)]
        cuts = [cut for cut in cuts if cut][: _MOST_PROBES - spent]
        answers = yield [_probe(index, filled(carrier, " ".join(cut))) for cut in cuts]
        spent += len(cuts)
        blocked = [cut for cut, answer in zip(cuts, answers, strict=True) if answer.is_blocked]
        if blocked:
            words, parts = blocked[0], max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(words))
    return words
