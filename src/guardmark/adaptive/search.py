"""Rounds 2 to 4: single operators, chains of them, and edited words where there is a score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.adaptive.beliefs import Background, Bandit, Belief, Precedents, best
from guardmark.adaptive.guided import ScoreMemory, follow_scores
from guardmark.adaptive.state import Query, together
from guardmark.attacks.contract import LONGEST, OperatorChain, Slot, may_follow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.adaptive.state import SearchState, Steps, Target

SEARCH_VERSION: Final = "search-v4"
"""Changes whenever equal answers no longer lead to equal tries."""
BEAM: Final = 4
_EXTENSIONS: Final = 12
_CARRIERS: Final = (Slot.CARRIER, Slot.WRAPPER)
_OPENING: Final = 4  # tries at least before the score is followed, to find a carrier
_WORTH: Final = 0.15  # belief in a chain that goes before following the score
_ALONE: Final = 16  # tries of single operators, where other attacks teach nothing
_HOPE: Final = 1.0  # tries that the parts of a chain are worth
MOST_USES: Final = 2  # of a seeded chain on one attack; others give the same text again


def search(state: SearchState, known: Background) -> Steps[list[Target]]:
    """Look for a bypass of every attack that was blocked at first, one try of each a wave.

    Without shared memory, each attack is searched as if it were the only one.
    """
    if state.shares_memory:
        return (yield from _search(state, known))
    lists = yield from together(
        [_search(state.alone(index), Background()) for index in state.blocked]
    )
    return [target for targets in lists for target in targets]


def spend_rest(state: SearchState, targets: list[Target], known: Background) -> Steps[None]:
    """Spend on single operators what another round left: no bad reply costs an attack its tries."""
    parts = [(state, targets, known)]
    if not state.shares_memory:
        parts = [(state.alone(each.position), [each], Background()) for each in targets]
    yield from together(
        [
            _waves(own, some, _singles(own, shared), round_="R4", until=state.budget)
            for own, some, shared in parts
        ]
    )


def _search(state: SearchState, known: Background) -> Steps[list[Target]]:
    targets = state.targets()
    most = state.budget
    bandit = _singles(state, known)
    if state.scores:
        opening = max(_OPENING, most // 8)
        yield from _waves(state, targets, bandit, round_="R2", until=opening)
        if known.record.outcomes:  # else nothing is known that could be worth more
            yield from _waves(state, targets, bandit, round_="R2", until=most, least=_WORTH)
        yield from follow_scores(state, targets, ScoreMemory(), until=most)
    alone = 0 if state.shares_memory else min(most, _ALONE)
    yield from _waves(state, targets, bandit, round_="R2", until=max(alone, most // 2))
    for lengths, until, round_ in ((1, most * 5 // 8, "R3"), (2, most, "R4")):
        bandit = _extended(bandit, lengths=lengths)
        yield from _waves(state, targets, bandit, round_=round_, until=until)
    return targets


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
    return bandit.joined(made.values()) if made else bandit


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
    least: float = 0.0,
) -> Steps[None]:
    """Give each attack under way one try a wave, until its budget for the round is spent.

    Attacks for which no chain is believed to get through at a rate of `least` are left out.
    """
    wave, live = 0, [t for t in targets if t.win is None and t.tries < until]
    while live:
        ranking = bandit.rankings(state.draw(round_, until, wave), len(live), least=least)
        tries: list[tuple[Target, Query, int]] = []
        for i, target in enumerate(live):
            for number in ranking(i, target.tries, bandit.kind(target.fold, target.failed)):
                query = _next_use(state, target, bandit.chains[number], round_=round_)
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
            chain, score = bandit.chains[number], answers[i].score or 0.0
            bandit.learn(number, passed=i in won)
            if score > state.allowed_score and chain.arms[0].operator.slot in _CARRIERS:
                target.carried = min(target.carried, (score, chain.key))
            if i in won:
                target.win = query
            else:
                target.failed |= bandit.failed(number)
        live = [t for t, _, _ in tries if t.win is None and t.tries < until]
        wave += 1


def _next_use(
    state: SearchState, target: Target, chain: OperatorChain, *, round_: str
) -> Query | None:
    """Make the next variant a chain gives of an attack, unless it was asked already."""
    for index in range(MOST_USES if any(arm.operator.seeded for arm in chain.arms) else 1):
        name = f"{chain.key}#{index}"
        if name in target.tried:
            continue
        target.tried.add(name)
        query = state.variant(target.position, chain, round_, index=index)
        if query is not None and query.is_proved and query.text not in target.seen:
            target.seen.add(query.text)
            return query
    return None
