"""Round 0 and the diagnosis: what a defense makes of texts as they are, and why it blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.state import PROBE, Account, Query, together
from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.catalogue import arm
from guardmark.attacks.comprehension import LONGS, SHORTS
from guardmark.attacks.contract import OperatorChain
from guardmark.attacks.operators.structure import filler
from guardmark.canon.steps import canonicalize

if TYPE_CHECKING:
    from guardmark.adaptive.state import SearchState, Steps, TryAnswer


RANDOMISED: Final = "RANDOMISED"
ERRORS_AS_BLOCK: Final = "ERRORS_AS_BLOCK"
STATEFUL: Final = "STATEFUL"
_SUBSAMPLE: Final = 60


def measure_baseline(state: SearchState) -> Steps[list[str]]:
    """Ask about every text as it is, and about some of them again; return the flags."""
    positions = range(len(state.samples))
    texts = [sample.prompt.text for sample in state.samples]
    first = yield [Query(p, text, Account.BASELINE, "R0") for p, text in enumerate(texts)]
    some = _subsample(state, first)
    second = yield [state.plain(index, Account.BASELINE, "R0.2") for index in some]
    third = yield [state.plain(index, Account.BASELINE, "R0.3") for index in some]
    turned = yield [state.plain(index, Account.BASELINE, "R0.reverse") for index in some[::-1]]
    flags, before = [], [first[index] for index in some]
    if _differ(before, second, third):
        flags.append(RANDOMISED)
    elif _differ(before, turned[::-1]):
        flags.append(STATEFUL)
    if any(answer.is_complaint for answer in first):
        flags.append(ERRORS_AS_BLOCK)
    is_attack = [sample.is_attack for sample in state.samples]
    answered = [index for index in positions if first[index].is_blocked is not None]
    state.blocked = tuple(p for p in answered if is_attack[p] and first[p].is_blocked)
    state.benign = tuple(p for p in answered if not is_attack[p])
    state.quiet = tuple(p for p in state.benign if first[p].passed)
    state.is_random = bool({RANDOMISED, STATEFUL} & set(flags))
    state.scores = {p: each.score for p, each in enumerate(first) if each.score is not None}
    passed = [state.scores[p] for p in answered if p in state.scores and first[p].passed]
    state.allowed_score = max(passed, default=0.0)
    return flags


def _subsample(state: SearchState, first: list[TryAnswer]) -> list[int]:
    """Take some of the blocked and some of the passed, in the order of the data."""
    draw = state.draw("baseline")
    taken: list[int] = []
    for wanted in (True, False):
        positions = [index for index, answer in enumerate(first) if answer.is_blocked is wanted]
        taken += draw.sample(positions, min(len(positions), _SUBSAMPLE // 2))
    return sorted(taken)


def _differ(*passes: list[TryAnswer]) -> bool:
    """Tell whether a sample got two different answers; a missing one is no answer."""
    by_sample = zip(*passes, strict=True)
    return any(len({each.is_blocked for each in same} - {None}) > 1 for same in by_sample)


KEYWORD: Final = "keyword"
PATTERN: Final = "pattern"
STATISTICAL: Final = "lexical-statistical"
INTENT: Final = "intent"
FORMAT: Final = "format"
NONE: Final = "none"

_GAP: Final = "{}"
_SIZES: Final = (400, 200, 100)  # words of harmless text, in which weak evidence drowns
_LEAST_VALUES: Final = 8  # different scores that no list of rules gives
_PLAIN: Final = "a list of books"
_ODD: Final = ("invisible", "homoglyph", "fullwidth", "accent", "zalgo")
_FILLER_DRAWS: Final = bytes(range(0, 256, 7))
_MOST_TARGETS: Final = 40
_MOST_PROBES: Final = 48
_SHUFFLES: Final = 3
_FEW_WORDS: Final = 4
_MANY_WORDS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What the probes say of one blocked attack."""

    position: int
    label: str
    core: tuple[str, ...]
    folds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the probes say of a defense."""

    label: str
    findings: tuple[ProbeResult, ...]
    folds: bool

    @property
    def kind(self) -> str:
        """The label as a model is told it: empty where nothing was seen of the defense."""
        return self.label if self.findings or self.label == FORMAT else ""

    def core_of(self, position: int) -> tuple[str, ...]:
        """Return the words of an attack that are blocked still; empty where nobody looked."""
        return next((each.core for each in self.findings if each.position == position), ())

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
    surroundings = yield from _surroundings(state)
    if surroundings is None:
        return UNKNOWN
    odd = yield [_probe(0, text) for text in _odd_texts(state, surroundings.short)]
    if 2 * sum(answer.is_blocked is True for answer in odd) > len(odd):
        return Diagnosis(label=FORMAT, findings=(), folds=False)
    dislikes_odd = any(answer.is_blocked for answer in odd)
    findings = yield from together(
        [
            _examine(state, index, surroundings, dislikes_odd=dislikes_odd)
            for index in _chosen(state)
        ]
    )
    if not findings:
        return UNKNOWN
    counts = Counter(finding.label for finding in findings)
    label = min(counts, key=lambda name: (-counts[name], name))
    folds = 2 * sum(finding.folds for finding in findings) > len(findings)
    return Diagnosis(label=label, findings=tuple(findings), folds=folds)


def _probe(index: int, text: str) -> Query:
    return Query(index, text, Account.DIAGNOSIS, "D", PROBE)


def _chosen(state: SearchState) -> list[int]:
    """Take a tenth of the blocked attacks, at least ten, spread over categories."""
    count = min(_MOST_TARGETS, max(10, len(state.blocked) // 10), len(state.blocked))
    by_category: dict[str, list[int]] = {}
    for index in state.blocked:
        by_category.setdefault(state.samples[index].category, []).append(index)
    draw = state.draw("diagnosis")
    for positions in by_category.values():
        draw.shuffle(positions)
    rounds = zip_longest(*(positions[::-1] for _, positions in sorted(by_category.items())))
    taken = [index for ranked in rounds for index in ranked if index is not None]
    return sorted(taken[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surroundings:
    """Harmless text that the defense lets through."""

    short: str
    long: str
    vast: str


def _surroundings(state: SearchState) -> Steps[_Surroundings | None]:
    """Look for harmless text that passes: ours, or that of the run; None without any."""
    own = _harmless(state)
    shorts = [*SHORTS, *(f"{each} {_GAP}" for each in own[:3])]
    longs = [*LONGS, *(f"{' '.join(own[i : i + 3])} {_GAP}" for i in (3, 6) if own[i:])]
    rest = " ".join(own[9:]).split()
    vast = [" ".join(rest[:size]) for size in _SIZES if len(rest) >= size]
    vast += [filler(_FILLER_DRAWS, size) for size in _SIZES]
    texts = [*(_filled(each, _PLAIN) for each in (*shorts, *longs)), *vast]
    answers: list[TryAnswer] = yield [_probe(0, text) for text in texts]
    passed = iter([answer.passed for answer in answers])
    shorts, longs, vast = (
        [each for each in kind if next(passed)] for kind in (shorts, longs, vast)
    )
    if not shorts or not longs:
        return None
    most = max(vast, key=lambda each: len(each.split()), default="")
    return _Surroundings(short=shorts[0], long=longs[0], vast=most)


def _harmless(state: SearchState) -> list[str]:
    """Return benign texts that passed, enough to fill several gaps."""
    draw = state.draw("harmless")
    texts = [state.samples[index].prompt.text for index in state.quiet]
    texts = [text for text in texts if text.isascii() and _GAP not in text]
    taken, words = list[str](), 0
    for text in draw.sample(texts, len(texts)):
        if words >= 2 * _SIZES[0]:
            break
        taken.append(text)
        words += len(text.split())
    return taken


def _filled(carrier: str, words: str) -> str:
    return carrier.replace(_GAP, words, 1)


def _odd_texts(state: SearchState, carrier: str) -> list[str]:
    text = _filled(carrier, _PLAIN)
    seeds = {name: seed_for(state.seed, name, "carrier", 0) for name in _ODD}
    made = [apply(OperatorChain.of(arm(name)), text, seed=seed) for name, seed in seeds.items()]
    return [each.text for each in made if each.is_variant]


def _examine(
    state: SearchState, index: int, around: _Surroundings, *, dislikes_odd: bool
) -> Steps[ProbeResult]:
    text = state.samples[index].prompt.text
    words = text.split()
    if not words:
        return ProbeResult(position=index, label=NONE, core=(), folds=False)
    core = yield from _shrink(index, words)
    joined = " ".join(core)
    draw = state.draw("shuffle", state.samples[index].id)
    shuffled = [" ".join(draw.sample(words, len(words))) for _ in range(_SHUFFLES)]
    invisible = OperatorChain.of(arm("invisible"))
    hidden = state.variant(index, invisible, "D", account=Account.DIAGNOSIS)
    texts = [
        _filled(around.short, joined),
        _filled(around.long, joined),
        " ".join(reversed(core)),
        canonicalize(text),
        text if hidden is None else hidden.text,
        f"{joined}\n{around.vast}",
        f"{around.vast}\n{joined}",
        *shuffled,
    ]
    replies = yield [_probe(index, each) for each in texts]
    blocked = [answer.is_blocked is True for answer in replies]
    if dislikes_odd and not blocked[3] and not text.isascii():
        label = FORMAT
    else:
        is_graded = len({answer.score for answer in replies} - {None}) >= _LEAST_VALUES
        is_drowned = bool(around.vast) and not (blocked[5] or blocked[6])
        label = _label(
            words, core, blocked, is_weighed=is_graded or is_drowned, is_drowned=is_drowned
        )
    folds = hidden is not None and blocked[4]
    return ProbeResult(position=index, label=label, core=tuple(core), folds=folds)


def _label(
    words: list[str], core: list[str], blocked: list[bool], *, is_weighed: bool, is_drowned: bool
) -> str:
    """Name the kind from what survives transport, reordering and dilution."""
    is_carried, is_shuffled = all(blocked[:2]), all(blocked[7:])
    is_most = len(core) >= max(_MANY_WORDS, len(words) // 2) and len(words) >= 2 * _MANY_WORDS
    if is_most and is_shuffled and is_carried and not is_drowned:
        return INTENT
    if is_weighed:  # a rule finds its match in any company; a sum of small evidence drowns
        return STATISTICAL
    if is_carried and len(core) <= _FEW_WORDS:
        is_keyword = len(core) == 1 or blocked[2] or f" {' '.join(core)} " in f" {' '.join(words)} "
        return KEYWORD if is_keyword else PATTERN
    return STATISTICAL if is_shuffled else PATTERN


def _shrink(index: int, words: list[str]) -> Steps[list[str]]:
    """Take words away while the rest is blocked still (delta debugging)."""
    parts, spent = 2, 0
    while len(words) > 1 and spent < _MOST_PROBES:
        size = -(-len(words) // parts)
        cuts = [words[:start] + words[start + size :] for start in range(0, len(words), size)]
        cuts = [cut for cut in cuts if cut][: _MOST_PROBES - spent]
        answers = yield [_probe(index, " ".join(cut)) for cut in cuts]
        spent += len(cuts)
        smaller = next((c for c, a in zip(cuts, answers, strict=True) if a.is_blocked), None)
        if smaller is not None:
            words, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(words))
    return words
