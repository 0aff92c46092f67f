"""Rounds 2 to 4: single operators, chains of them, and operators on the part that matters."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.beliefs import Background, Bandit, Belief, Precedents, best
from guardmark.adaptive.state import PROBE, Account, Query, together
from guardmark.attacks.contract import LONGEST, OperatorChain, Slot, may_follow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.state import SearchState, Steps, Target

Span = tuple[int, int]
"""Beginning and end of a part of a text."""

SEARCH_VERSION: Final = "search-v3"
"""Changes whenever equal answers no longer lead to equal tries."""
BEAM: Final = 4
_EXTENSIONS: Final = 12
_HOPE: Final = 1.0  # tries that the parts of a chain are worth
MOST_USES: Final = 2  # of a seeded chain on one attack; others give the same text again


def search(state: SearchState, known: Background) -> Steps[list[Target]]:
    """Look for a bypass of every attack that was blocked at first, one try of each a wave.

    Without shared memory, each attack is searched as if it were the only one.
    """
    if state.shares_memory:
        return (yield from _search(state, known))
    found = yield from together(
        [_search(state.alone(place), Background()) for place in state.blocked]
    )
    return [target for targets in found for target in targets]


def spend_rest(state: SearchState, targets: list[Target], known: Background) -> Steps[None]:
    """Spend on single operators what another round left: no bad reply costs an attack its tries."""
    if state.shares_memory:
        yield from _spend_rest(state, targets, known)
    else:
        yield from together(
            [_spend_rest(state.alone(each.position), [each], Background()) for each in targets]
        )


def _search(state: SearchState, known: Background) -> Steps[list[Target]]:
    targets = state.targets()
    most = state.budget
    bandit = _singles(state, known)
    yield from _waves(state, targets, bandit, round_="R2", until=most // 2)
    bandit = _extended(bandit, lengths=1)
    yield from _waves(state, targets, bandit, round_="R3", until=most * 5 // 8)
    bandit = _extended(bandit, lengths=2)
    yield from _waves(state, targets, bandit, round_="R3", until=most * 3 // 4)
    yield from _narrow(state, targets, bandit, known.diagnosis)
    yield from _waves(state, targets, bandit, round_="R4", until=most)
    return targets


def _spend_rest(state: SearchState, targets: list[Target], known: Background) -> Steps[None]:
    yield from _waves(state, targets, _singles(state, known), round_="R4", until=state.budget)


def _singles(state: SearchState, known: Background) -> Bandit:
    chains = state.singles()
    precedents = Precedents(chains, known.diagnosis, known.record, folds=state.folds())
    return Bandit(chains=chains, precedents=precedents)


def _extended(bandit: Bandit, *, lengths: int) -> Bandit:
    """Add chains made of the best ones with the best single arms before or behind them."""
    means, chains = bandit.means(), bandit.chains
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
    return bandit.joined(made.values())


def _joined(chain: OperatorChain, single: OperatorChain) -> Iterator[OperatorChain]:
    """Put an arm behind a chain and before it, where the order is allowed."""
    if may_follow(chain, single.arms[0]):
        yield OperatorChain(arms=(*chain.arms, single.arms[0]))
    arms = (*single.arms, *chain.arms)
    if len(chain.arms) < LONGEST and all(
        may_follow(OperatorChain(arms=arms[:i]), arms[i]) for i in range(1, len(arms))
    ):
        yield OperatorChain(arms=arms)


def _waves(
    state: SearchState,
    targets: list[Target],
    bandit: Bandit,
    *,
    round_: str,
    until: int,
    spans: Mapping[int, Sequence[Span]] | None = None,
) -> Steps[None]:
    """Give each attack under way one try a wave, until its budget for the round is spent.

    Chains change the whole text, or one of the spans where they are given.
    """
    wave, live = 0, [t for t in targets if t.win is None and t.tries < until]
    while live:
        ranking = bandit.rankings(state.draw(round_, until, wave), len(live))
        tries: list[tuple[Target, Query, int]] = []
        for i, target in enumerate(live):
            parts = None if spans is None else spans[target.position]
            for number in ranking(i, target.tries, bandit.kind(target.fold, target.failed)):
                query = _next_use(state, target, bandit.chains[number], round_=round_, spans=parts)
                if query is not None:
                    tries.append((target, query, number))
                    break
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
            else:
                target.failed |= bandit.failed(number)
        live = [t for t, _, _ in tries if t.win is None and t.tries < until]
        wave += 1


def _next_use(
    state: SearchState,
    target: Target,
    chain: OperatorChain,
    *,
    round_: str,
    spans: Sequence[Span] | None,
) -> Query | None:
    """Make the next variant a chain gives of an attack, unless it was asked already."""
    key = chain.key
    if spans is None:
        count = MOST_USES if any(arm.operator.seeded for arm in chain.arms) else 1
        uses: list[tuple[str, int, Span | None]] = [(f"{key}#{i}", i, None) for i in range(count)]
    else:
        uses = [(f"{key}@{span}", 0, span) for span in spans]
    for name, index, span in uses:
        if name in target.tried:
            continue
        target.tried.add(name)
        query = state.variant(target.position, chain, round_, index=index, span=span)
        if query is not None and query.is_proved and query.text not in target.seen:
            target.seen.add(query.text)
            return query
    return None


def _narrow(
    state: SearchState, targets: list[Target], bandit: Bandit, diagnosis: Diagnosis
) -> Steps[None]:
    """Round 4: change only the words that matter, by diagnosis or by score."""
    local = Bandit().joined(
        (chain, Belief((0.5 + mean) / 2, 2.0))
        for chain, mean in zip(bandit.chains, bandit.means(), strict=True)
        if len(chain.arms) == 1 and chain.arms[0].operator.slot <= Slot.SURFACE
    )
    live = [target for target in targets if target.win is None and target.tries < state.budget]
    spans = yield from _spans(state, live, diagnosis)
    until = state.budget * 9 // 10
    yield from _waves(state, live, local, round_="R4", until=until, spans=spans)


_WORD: Final = re.compile(r"\w+")
_PIECES: Final = 6
_TRIGGERS: Final = 200


def _spans(
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
        spans[target.position] = _of_triggers(text, triggers) + _pieces(text, 4)
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


def _pieces(text: str, count: int) -> list[Span]:
    size = max(1, -(-len(text) // count))
    return [(start, min(start + size, len(text))) for start in range(0, len(text), size)]


def _by_score(
    state: SearchState, targets: list[Target], spans: dict[int, list[Span]]
) -> Steps[None]:
    """Put the piece first without which the score of a text is lowest."""
    asked: list[tuple[Span, Query]] = []
    for target in targets:
        if state.budget - target.tries <= 2 * _PIECES:
            continue
        place, text, layer = target.position, target.sample.prompt.text, state.layer()
        for span in _pieces(text, _PIECES):
            rest = text[: span[0]] + text[span[1] :]
            if rest.strip():
                query = Query(place, rest, Account.SEARCH, "R4", PROBE, layer=layer)
                asked.append((span, query))
                target.tries += 1
    answers = yield [query for _, query in asked]
    lowest: dict[int, tuple[float, Span]] = {}
    for (span, query), answer in zip(asked, answers, strict=True):
        if answer.score is not None:
            before = lowest.setdefault(query.sample, (answer.score, span))
            if answer.score < before[0]:
                lowest[query.sample] = (answer.score, span)
    for position, (_, span) in lowest.items():
        spans[position].insert(0, span)
