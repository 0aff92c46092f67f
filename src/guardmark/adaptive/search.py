"""Rounds 2 to 4: single operators, chains of them, and operators on the part that matters."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.beliefs import Bandit, BatteryRecord, Belief, Precedents, best
from guardmark.adaptive.diagnosis import NONE, Diagnosis
from guardmark.adaptive.questions import PROBE, Account, Query, together
from guardmark.attacks.contract import LONGEST, OperatorChain, Slot, may_follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from guardmark.adaptive.questions import Steps
    from guardmark.adaptive.state import SearchState, Target

    Pick = Callable[[Target, list[int]], tuple[Query, int] | None]


SEARCH_VERSION: Final = "search-v3"
"""Changes whenever equal answers no longer lead to equal tries."""
BEAM: Final = 4
_EXTENSIONS: Final = 12
_HOPE: Final = 1.0  # tries that the parts of a chain are worth
MOST_USES: Final = 2  # of a seeded chain on one attack; others give the same text again


def search(
    state: SearchState, diagnosis: Diagnosis, *, record: BatteryRecord
) -> Steps[list[Target]]:
    """Look for a bypass of every attack that was blocked at first, one try of each a wave."""
    targets = state.targets()
    most = state.budget
    pool = _singles(state, diagnosis, record)
    yield from _waves(state, targets, pool, round_="R2", until=most // 2)
    pool = _extended(pool, lengths=1)
    yield from _waves(state, targets, pool, round_="R3", until=most * 5 // 8)
    pool = _extended(pool, lengths=2)
    yield from _waves(state, targets, pool, round_="R3", until=most * 3 // 4)
    yield from _narrow(state, targets, pool, diagnosis)
    yield from _waves(state, targets, pool, round_="R4", until=most)
    return targets


def spend_rest(
    state: SearchState, targets: list[Target], *, diagnosis: Diagnosis, record: BatteryRecord
) -> Steps[None]:
    """Spend on single operators what another round left: no bad reply costs an attack its tries."""
    live = [target for target in targets if target.win is None and target.tries < state.budget]
    pool = _singles(state, diagnosis, record)
    yield from _waves(state, live, pool, round_="R4", until=state.budget)


def _singles(state: SearchState, diagnosis: Diagnosis, record: BatteryRecord) -> Pool:
    chains = state.singles()
    precedents = Precedents(chains, diagnosis, record, folds=state.folds())
    return Pool(bandit=Bandit(chains), precedents=precedents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What there is to choose from, and what is believed of it."""

    bandit: Bandit
    precedents: Precedents | None
    others: tuple[Belief, ...] = ()

    def kind(self, target: Target) -> tuple[int, int]:
        """Return what attacks share of which the same is believed."""
        if self.precedents is None:
            return 0, 0
        return self.precedents.kind(target.fold, target.failed)

    def beliefs(self, kind: tuple[int, int] = (0, 0)) -> list[Belief]:
        """Return what is believed of each chain, for attacks of a kind."""
        first = [] if self.precedents is None else self.precedents.beliefs(kind)
        return [*first, *self.others]

    def rankings(self, draw: Random, most: int) -> Callable[[int, Target], list[int]]:
        """Draw how promising each chain is."""
        views = self.bandit.views(draw, most)
        known: dict[tuple[int, int, tuple[int, int]], list[int]] = {}

        def ranking(number: int, target: Target) -> list[int]:
            kind, view = self.kind(target), number % len(views)
            place = (view, target.tries, kind)
            if place not in known:
                known[place] = self.bandit.ranking(
                    self.beliefs(kind), views[view], tries=target.tries
                )
            return known[place]

        return ranking


def _extended(pool: Pool, *, lengths: int) -> Pool:
    """Add chains made of the best ones with the best single arms before or behind them."""
    means, chains = pool.bandit.means(pool.beliefs()), pool.bandit.chains
    order = best(means, len(means))
    singles = [i for i in order if len(chains[i].arms) == 1][:_EXTENSIONS]
    seeds = [i for i in order if len(chains[i].arms) == lengths][:BEAM]
    known = {chain.key for chain in chains}
    made: dict[str, tuple[OperatorChain, Belief]] = {}
    for seed in seeds:
        for other in singles:
            mean = 1 - (1 - means[seed]) * (1 - means[other])
            for longer in _joined(chains[seed], chains[other]):
                if longer.key not in known:
                    made.setdefault(longer.key, (longer, Belief(mean, _HOPE)))
    return Pool(
        bandit=pool.bandit.joined([each[0] for each in made.values()]),
        precedents=pool.precedents,
        others=(*pool.others, *(each[1] for each in made.values())),
    )


def _joined(chain: OperatorChain, single: OperatorChain) -> Iterator[OperatorChain]:
    """Put an arm behind a chain and before it, where the order is allowed."""
    if may_follow(chain, single.arms[0]):
        yield OperatorChain(arms=(*chain.arms, single.arms[0]))
    if len(chain.arms) < LONGEST and _may_lead(single, chain):
        yield OperatorChain(arms=(*single.arms, *chain.arms))


def _may_lead(first: OperatorChain, rest: OperatorChain) -> bool:
    chain = first
    for arm in rest.arms:
        if not may_follow(chain, arm):
            return False
        chain = OperatorChain(arms=(*chain.arms, arm))
    return True


def _waves(
    state: SearchState, targets: list[Target], pool: Pool, *, round_: str, until: int
) -> Steps[None]:
    """Let every attack try chains as they are, until its budget for the round is spent."""
    chains = pool.bandit.chains

    def pick(target: Target, ranking: list[int]) -> tuple[Query, int] | None:
        for number in ranking:
            found = _next_use(state, target, chains[number], round_=round_)
            if found is not None:
                return found, number
        return None

    yield from run_waves(state, targets, pool, pick=pick, round_=round_, until=until)


def _next_use(
    state: SearchState, target: Target, chain: OperatorChain, *, round_: str
) -> Query | None:
    """Make the next variant a chain gives of an attack, unless it was asked already."""
    key = chain.key
    uses = MOST_USES if any(arm.operator.seeded for arm in chain.arms) else 1
    for index in range(uses):
        name = f"{key}#{index}"
        if name in target.tried:
            continue
        target.tried.add(name)
        query = state.variant(target.position, chain, round_, index=index)
        if query is not None and query.text not in target.seen:
            target.seen.add(query.text)
            return query
    return None


def run_waves(
    state: SearchState, targets: list[Target], pool: Pool, *, pick: Pick, round_: str, until: int
) -> Steps[None]:
    """Give each attack under way one try a wave."""
    bandit = pool.bandit
    wave, live = 0, [t for t in targets if t.win is None and t.tries < until]
    while live:
        ranking = pool.rankings(state.draw(round_, until, wave), len(live))
        tries = [
            (target, *found)
            for i, target in enumerate(live)
            if (found := pick(target, ranking(i, target))) is not None
        ]
        if not tries:
            return
        batch = [query for _, query, _ in tries]
        answers = yield batch
        won = yield from state.confirm(batch, answers)
        bandit.fade()
        for i, (target, query, number) in enumerate(tries):
            target.tries += 1
            if answers[i].is_blocked is None:
                continue
            bandit.learn(number, passed=i in won)
            if i in won:
                target.win = query
            elif pool.precedents is not None and len(bandit.chains[number].arms) == 1:
                target.failed |= pool.precedents.failed(bandit.chains[number])
        live = [t for t, _, _ in tries if t.win is None and t.tries < until]
        wave += 1


def _narrow(
    state: SearchState, targets: list[Target], pool: Pool, diagnosis: Diagnosis
) -> Steps[None]:
    """Round 4: change only the words that matter, by diagnosis or by score."""
    means = pool.bandit.means(pool.beliefs())
    places = [
        i
        for i, chain in enumerate(pool.bandit.chains)
        if len(chain.arms) == 1 and chain.arms[0].operator.slot <= Slot.SURFACE
    ]
    belief = tuple(Belief((0.5 + means[i]) / 2, 2.0) for i in places)
    local = Pool(
        bandit=Bandit([pool.bandit.chains[i] for i in places]), precedents=None, others=belief
    )
    live = [target for target in targets if target.win is None and target.tries < state.budget]
    spans = yield from spans_of(state, live, diagnosis)

    def pick(target: Target, ranking: list[int]) -> tuple[Query, int] | None:
        for number in ranking:
            chain = local.bandit.chains[number]
            for span in spans[target.position]:
                name = f"{chain.key}@{span}"
                if name in target.tried:
                    continue
                target.tried.add(name)
                query = state.variant(target.position, chain, "R4", span=span)
                if query is not None and query.text not in target.seen:
                    target.seen.add(query.text)
                    return query, number
        return None

    until = state.budget * 9 // 10
    yield from run_waves(state, live, local, pick=pick, round_="R4", until=until)


UNKNOWN: Final = Diagnosis(label=NONE, findings=(), folds=False)
"""What an attacker without memory knows of a defense beforehand."""


def search_alone(state: SearchState) -> Steps[list[Target]]:
    """Look for a bypass of every attack blocked at first, each as if it were the only one."""
    found = yield from together(
        [search(state.alone(place), UNKNOWN, record=BatteryRecord()) for place in state.blocked]
    )
    return [target for targets in found for target in targets]


def spend_rest_alone(state: SearchState, targets: Sequence[Target]) -> Steps[None]:
    """Spend on single operators what another round left, each attack by itself."""
    yield from together(
        [
            spend_rest(
                state.alone(each.position), [each], diagnosis=UNKNOWN, record=BatteryRecord()
            )
            for each in targets
        ]
    )


Span = tuple[int, int]

_WORD: Final = re.compile(r"\w+")
_PIECES: Final = 6
_TRIGGERS: Final = 200


def spans_of(
    state: SearchState, targets: list[Target], diagnosis: Diagnosis
) -> Steps[dict[int, list[Span]]]:
    """Find for each attack the parts worth changing: by score, words of the diagnosis, quarters."""
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
    if state.has_scores:
        yield from _by_score(state, targets, spans)
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
    state: SearchState, targets: list[Target], spans: dict[int, list[Span]]
) -> Steps[None]:
    asked: list[tuple[Target, Span]] = []
    batch: list[Query] = []
    for target in targets:
        if state.budget - target.tries <= 2 * _PIECES:
            continue
        text = target.sample.prompt.text
        size = max(1, -(-len(text) // _PIECES))
        for start in range(0, len(text), size):
            rest = text[:start] + text[start + size :]
            if rest.strip():
                asked.append((target, (start, min(start + size, len(text)))))
                layer = state.layer()
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
