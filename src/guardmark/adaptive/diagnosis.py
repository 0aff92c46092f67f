"""Round 0 and the diagnosis: what a defense makes of texts as they are, and why it blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from itertools import accumulate, pairwise
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
    from collections.abc import Mapping

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
    texts = [sample.prompt.text for sample in state.samples]
    first = yield [Query(p, text, Account.BASELINE, "R0") for p, text in enumerate(texts)]
    some = _subsample(state, first)
    second = yield [state.plain(index, Account.BASELINE, "R0.2") for index in some]
    third = yield [state.plain(index, Account.BASELINE, "R0.3") for index in some]
    turned = yield [state.plain(index, Account.BASELINE, "R0.reverse") for index in some[::-1]]
    passes = [[first[index] for index in some], second, third, turned[::-1]]
    flags = [(yield from _unsteady(state, some, passes))] if _changes(some, passes) else []
    if any(answer.is_complaint for answer in first):
        flags.append(ERRORS_AS_BLOCK)
    is_attack = [sample.is_attack for sample in state.samples]
    answered = [index for index, each in enumerate(first) if each.is_blocked is not None]
    state.blocked = tuple(p for p in answered if is_attack[p] and first[p].is_blocked)
    state.benign = tuple(p for p in answered if not is_attack[p])
    state.quiet = tuple(p for p in state.benign if first[p].passed)
    state.is_random = bool({RANDOMISED, STATEFUL, RATE_LIMITED} & set(flags))
    state.scores = {p: each.score for p, each in enumerate(first) if each.score is not None}
    passed = [state.scores[p] for p in answered if p in state.scores and first[p].passed]
    state.allowed_score = max(passed, default=0.0)
    return flags


def _subsample(state: SearchState, first: list[TryAnswer]) -> list[int]:
    """Take some of the blocked and some of the passed, in the order of the data."""
    draw = state.draw("baseline")
    sides = ([i for i, a in enumerate(first) if a.is_blocked is side] for side in (True, False))
    return sorted(i for side in sides for i in draw.sample(side, min(len(side), _SUBSAMPLE // 2)))


def _changes(some: list[int], passes: list[list[TryAnswer]]) -> dict[int, list[bool]]:
    """Return whether a sample passed, time after time, where that differs; None is no answer."""
    by_sample = zip(some, zip(*passes, strict=True), strict=True)
    marks = {i: [a.passed for a in same if a.is_blocked is not None] for i, same in by_sample}
    return {i: passed for i, passed in marks.items() if len(set(passed)) > 1}


def _unsteady(state: SearchState, some: list[int], passes: list[list[TryAnswer]]) -> Steps[str]:
    """Tell chance from a limit on calls, and from answers that depend on the calls before.

    A limit turns texts away that were never sent; memory knows only what was sent.
    """
    changes = _changes(some, passes)
    is_falling = all(marks == sorted(marks, reverse=True) for marks in changes.values())
    is_rising = all(marks == sorted(marks) for marks in changes.values())
    if is_falling:
        quiet = [i for i, answer in zip(some, passes[0], strict=True) if answer.passed][:_NEW]
        texts = [state.samples[index].prompt.text for index in quiet]
        new = [*map(" ".join, zip(texts, texts[::-1], strict=True)), *carriers("everyday")]
        answers = yield [Query(0, text, Account.BASELINE, "R0.new", PROBE) for text in new]
        if quiet and all(answer.is_blocked for answer in answers):
            return RATE_LIMITED
    elif not _changes(some, passes[:-1]):
        return STATEFUL
    index = min(changes)
    row: list[bool] = []
    for _ in range(_ROW):
        (answer,) = yield [state.plain(index, Account.BASELINE, "R0.row")]
        row.append(answer.passed)
    at = [i for i, passed in enumerate(row) if passed]
    has_rhythm = len(at) >= _RHYTHM and len({b - a for a, b in pairwise(at)}) == 1 < at[1] - at[0]
    is_over = not at if is_falling else is_rising and all(row)
    return STATEFUL if has_rhythm or is_over else RANDOMISED


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
    """What the probes say of one blocked attack, or of a harmless text of ours."""

    position: int
    label: str
    core: tuple[str, ...]
    signs: Mapping[str, bool] = field(default_factory=dict)  # whether it has each that was tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the probes say of a defense."""

    label: str
    findings: tuple[ProbeResult, ...]
    folds: bool
    is_gated: bool = False  # whether odd characters are turned away, whatever they say

    def core_of(self, position: int) -> tuple[str, ...]:
        """Return the words of an attack that are blocked still; empty where nobody looked."""
        return next((each.core for each in self.findings if each.position == position), ())

    @property
    def signs(self) -> dict[str, list[int]]:
        """How many attacks show each sign, and on how many it was looked for."""
        seen = Counter(name for each in self.findings for name in each.signs)
        shown = Counter(name for each in self.findings for name, yes in each.signs.items() if yes)
        return {name: [shown[name], tried] for name, tried in sorted(seen.items())}

    @property
    def shares(self) -> dict[str, float]:
        """Share of each label among the findings."""
        count = Counter(finding.label for finding in self.findings)
        return {label: n / len(self.findings) for label, n in sorted(count.items())}


UNKNOWN: Final = Diagnosis(label=NONE, findings=(), folds=False)


def diagnose(state: SearchState) -> Steps[Diagnosis]:
    """Probe a defense with texts that are no attacks, and with pieces of blocked ones."""
    if state.is_random or not state.samples:
        return UNKNOWN
    around = yield from _surroundings(state)
    if state.quiet and (around is None or around.is_rare):
        everyday = yield [_probe(0, text) for text in carriers("everyday")]
        marks = [probes.ALLOW_LIST if answer.is_blocked else NONE for answer in everyday]
        if marks.count(probes.ALLOW_LIST) >= _CLOSED * len(marks):
            refused = tuple(ProbeResult(position=OWN, label=mark, core=()) for mark in marks)
            return replace(UNKNOWN, label=probes.ALLOW_LIST, findings=refused)
    if around is None:
        return UNKNOWN
    odd = yield [_probe(0, text) for text in _odd_texts(state, around.short)]
    dislikes = sum(answer.is_blocked is True for answer in odd)
    around = replace(around, dislikes_odd=dislikes > 0, is_gated=2 * dislikes > len(odd))
    findings = yield from together([_examine(state, index, around) for index in _chosen(state)])
    if not findings:
        return replace(UNKNOWN, label=probes.FORMAT if around.is_gated else NONE)
    counts = Counter(finding.label for finding in findings)
    label = min(counts, key=lambda name: (-counts[name], name))
    reading = sum(each.signs.get(probes.CANONICALISER, False) for each in findings)
    folds = 2 * reading > len(findings)
    return Diagnosis(label=label, findings=tuple(findings), folds=folds, is_gated=around.is_gated)


def _probe(index: int, text: str) -> Query:
    return Query(index, text, Account.DIAGNOSIS, "D", PROBE)


def _chosen(state: SearchState) -> list[int]:
    """Take a tenth of the blocked attacks, at least ten, spread over categories."""
    count = min(_MOST_TARGETS, max(10, len(state.blocked) // 10), len(state.blocked))
    order = state.draw("diagnosis").sample(state.blocked, len(state.blocked))
    seen, ranked = Counter[str](), list[tuple[int, int]]()
    for index in order:
        seen[state.samples[index].category] += 1
        ranked.append((seen[state.samples[index].category], index))
    return sorted(index for _, index in sorted(ranked, key=lambda each: each[0])[:count])


def _surroundings(state: SearchState) -> Steps[Surroundings | None]:
    """Look for harmless text that passes: ours, or that of the run; None without any."""
    own = _harmless(state)
    shorts = [*carriers("short"), *(f"{each} {GAP}" for each in own[:3])]
    longs = [*carriers("long"), *(f"{' '.join(own[i : i + 3])} {GAP}" for i in (3, 6) if own[i:])]
    rest = " ".join(own[9:]).split()
    vast = [" ".join(rest[:size]) for size in _SIZES if len(rest) >= size]
    vast += [filler(_FILLER_DRAWS, size) for size in _SIZES]
    texts = [*(filled(each, _PLAIN) for each in (*shorts, *longs)), *vast]
    answers: list[TryAnswer] = yield [_probe(0, text) for text in texts]
    passed = iter([answer.passed for answer in answers])
    blocked = {text for text, answer in zip(texts, answers, strict=True) if answer.is_blocked}
    ours = [filled(each, _PLAIN) for kind in ("short", "long") for each in carriers(kind)]
    ours += vast[-len(_SIZES) :]
    shorts, longs, vast = (
        [each for each in kind if next(passed)] for kind in (shorts, longs, vast)
    )
    if not shorts or len(shorts + longs) < _LEAST_CARRIERS:
        return None
    if not vast:  # where long texts are blocked, shorter ones show the beginning from the end, too
        made = [filler(_FILLER_DRAWS, size) for size in _SMALL_SIZES]
        answers = yield [_probe(0, text) for text in made]
        vast = [text for text, answer in zip(made, answers, strict=True) if answer.passed]
    most = max(vast, key=lambda each: len(each.split()), default="")
    is_rare = 2 * len(blocked.intersection(ours)) > len(ours)
    return Surroundings(short=shorts[0], long=(longs or shorts)[0], vast=most, is_rare=is_rare)


def _harmless(state: SearchState) -> list[str]:
    """Return benign texts that passed, enough to fill several gaps."""
    texts = [state.samples[index].prompt.text for index in state.quiet]
    texts = [text for text in texts if text.isascii() and GAP not in text]
    drawn = state.draw("harmless").sample(texts, len(texts))
    words = accumulate((len(text.split()) for text in drawn), initial=0)
    return [text for text, so_far in zip(drawn, words, strict=False) if so_far < 2 * _SIZES[0]]


def _odd_texts(state: SearchState, carrier: str) -> list[str]:
    text = filled(carrier, _PLAIN)
    seeds = {name: seed_for(state.seed, name, "carrier", 0) for name in _ODD}
    made = [apply(OperatorChain.of(arm(name)), text, seed=seed) for name, seed in seeds.items()]
    return [each.text for each in made if each.is_variant]


def _examine(state: SearchState, index: int, around: Surroundings) -> Steps[ProbeResult]:
    text = state.samples[index].prompt.text
    words = text.split()
    if not words:
        return ProbeResult(position=index, label=NONE, core=())
    carrier = GAP
    if around.is_gated:  # what is left of a text must pass the gate, or the gate would be examined
        (carried,) = yield [_probe(index, filled(around.short, text))]
        carrier = around.short if carried.is_blocked else GAP
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
    is_odd = blocked["shuffled"] if around.is_gated else not text.isascii()
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
        smaller = next((c for c, a in zip(cuts, answers, strict=True) if a.is_blocked), None)
        if smaller is not None:
            words, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(words))
    return words
