"""Rounds 2 to 4: single operators, chains of them, and edited words where there is a score."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.beliefs import Background, Bandit, Belief, Precedents
from guardmark.adaptive.guided import Descents
from guardmark.adaptive.state import Query, asked_in_turn, together
from guardmark.attacks.contract import OperatorChain, Slot, fault_of
from guardmark.attacks.talks import turns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.adaptive.state import SearchState, Steps, Target, TryAnswer

SEARCH_VERSION: Final = "search-v15"  # changes whenever equal answers no longer lead to equal tries
ALONE_VERSION: Final = "search-v16"  # the same, of attacks that share no memory
SEEDS_AGAIN: Final = 3  # of the search against a repaired defense: one would be one draw
BEAM: Final = 4
_EXTENSIONS: Final = 12
_CARRIERS: Final = (Slot.CARRIER, Slot.WRAPPER)
_ALIKE: Final = 0.5  # of a failure, for other settings of its operator where an attack is alone
_CHAINS_FIRST: Final = 8  # tries for which a score changes nothing: it must not cost a bypass
_HOPE: Final = 1.0  # tries that the parts of a chain are worth
MOST_USES: Final = 2  # of a seeded chain on one attack; others give the same text again


def search(state: SearchState, known: Background) -> Steps[list[Target]]:
    """Look for a bypass of every blocked attack, one try of each a wave, or each on its own."""
    if state.shares_memory:
        return (yield from _search(state, known))
    searches = [_search(state.alone(index), Background()) for index in state.blocked]
    found: list[Target] = []
    for targets in (yield from together(searches)):
        found += targets
    return found


def spend_rest(state: SearchState, targets: list[Target], known: Background) -> Steps[None]:
    """Spend on single operators what another round left: no bad reply costs an attack its tries."""
    parts = [(state, targets, known)]
    if not state.shares_memory:
        parts = [(state.alone(each.position), [each], Background()) for each in targets]
    rest = partial(_waves, round_="R4", until=state.budget)
    procedures = []
    for own, some, shared in parts:
        procedures.append(rest(own, some, _singles(own, shared), descents=Descents(state=own)))
    yield from together(procedures)


def _search(state: SearchState, known: Background) -> Steps[list[Target]]:
    """Carry out rounds 2 to 4: chains grow by one operator from round to round."""
    targets, most = state.targets(), state.budget
    bandit = _singles(state, known)
    descents = Descents(state=state)
    # One attack alone never says which parts of a chain help: every single operator comes first.
    single = most
    if state.shares_memory:
        single = most // 2
    ends = (("R2", single), ("R3", most * 5 // 8), ("R4", most))
    for lengths, (round_, until) in enumerate(ends):
        if not any(target.win is None and target.tries < most for target in targets):
            break
        if lengths:
            bandit = _extended(bandit, lengths=lengths)
        yield from _waves(state, targets, bandit, round_=round_, until=until, descents=descents)
    return targets


def _singles(state: SearchState, known: Background) -> Bandit:
    chains = state.chains()
    precedents = Precedents(chains, known.diagnosis, known.record, folds=state.folds())
    return Bandit(chains=chains, precedents=precedents)


def _extended(bandit: Bandit, *, lengths: int) -> Bandit:
    """Add chains made of the best ones with the best single arms before or behind them."""
    means, chains = bandit.beliefs()[0].tolist(), bandit.chains
    # What changes none of the texts was never asked: it did not fail, and a chain gains nothing.
    asked = [i for i in range(len(means)) if bandit.passes[i] or bandit.stops[i]]
    order = sorted(asked, key=lambda i: -means[i])
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
    if not made:
        return bandit
    return bandit.joined(made.values())


def _joined(chain: OperatorChain, single: OperatorChain) -> Iterator[OperatorChain]:
    """Put an arm behind a chain and before it, where the order is allowed."""
    for arms in ((*chain.arms, *single.arms), (*single.arms, *chain.arms)):
        if not fault_of(arms):
            yield OperatorChain(arms=arms)


def _waves(
    state: SearchState,
    targets: list[Target],
    bandit: Bandit,
    *,
    round_: str,
    until: int,
    descents: Descents,
) -> Steps[None]:
    """Give each attack under way one try a wave, until its budget for the round is spent."""
    wave, live = 0, _under_way(targets, until)
    while live:
        ranking = bandit.rankings(state.draw(round_, until, wave), len(live))
        tries: list[tuple[Target, Query, int | None]] = []
        for i, target in enumerate(live):
            order = ranking(i, target.tries, bandit.precedents.kind(target.fold, target.failed))
            # Chains first, and every other try: what one attack finds there serves all of them.
            turn = target.tries >= _CHAINS_FIRST and (i + wave) % 2 > 0
            if state.has_turns:
                order = _in_room(order, bandit, until - target.tries)
            chosen = _next_try(
                state, target, bandit, order, descents=descents, round_=round_, is_turn=turn
            )
            if chosen is not None:
                tries.append((target, *chosen))
        if not tries:
            return
        batch = [query for _, query, _ in tries]
        if state.has_turns:
            answers = yield from asked_in_turn(batch)
        else:
            answers = yield batch
        won = yield from state.confirm(batch, answers)
        bandit.fade()
        for i, (target, query, number) in enumerate(tries):
            target.tries += answers[i].calls
            if i in won:
                target.win = query
            if number is None:
                descents.learn(target, answers[i])
            else:
                _learn(state, target, bandit, number, answer=answers[i])
        live = _under_way([target for target, _, _ in tries], until)
        wave += 1


def _under_way(targets: Sequence[Target], until: int) -> list[Target]:
    """Return the attacks that nothing brought through and that have tries left."""
    return [target for target in targets if target.win is None and target.tries < until]


def _in_room(order: Mapping[int, float], bandit: Bandit, room: int) -> dict[int, float]:
    """Keep the chains that the tries left suffice for: a conversation takes one for each turn."""
    return {n: hope for n, hope in order.items() if turns_of(bandit.chains[n]) <= room}


def _next_try(
    state: SearchState,
    target: Target,
    bandit: Bandit,
    order: Mapping[int, float],
    *,
    descents: Descents,
    round_: str,
    is_turn: bool,
) -> tuple[Query, int | None] | None:
    """Make the next try, by a chain (with its number) or where the score points if worth more."""
    name, number = "", None
    for candidate in order:
        name = _next_use(state, target, bandit.chains[candidate], round_=round_)
        if name:
            number = candidate
            break
    if number is None or (is_turn and descents.chance(target) > order[number]):
        guided = descents.propose(target)
        if guided is not None:
            return guided, None
    if number is None:
        return None
    query = target.made.pop(name)
    target.tried.add(name)
    target.seen.add(query.text)
    if query.round != round_:
        query = replace(query, round=round_)
    return query, number


def _learn(
    state: SearchState, target: Target, bandit: Bandit, number: int, *, answer: TryAnswer
) -> None:
    """Take note of what a chain came to; without a decision there is nothing to note."""
    if answer.is_blocked is None:
        return
    chain, score = bandit.chains[number], answer.score or 0.0
    alike = 0.0
    if state.unit:
        alike = _ALIKE
    bandit.learn(number, passed=target.win is not None, alike=alike)
    if score > state.allowed_score and chain.arms[0].operator.slot in _CARRIERS:
        target.carried = min(target.carried, (score, chain.key))
    if target.win is None:
        target.failed |= bandit.failed(number)


def _next_use(state: SearchState, target: Target, chain: OperatorChain, *, round_: str) -> str:
    """Name the next variant that a chain gives of an attack, made and not asked yet; or nothing."""
    key, uses = chain.key, 1
    if key in target.tried:
        return ""
    if any(arm.operator.seeded for arm in chain.arms):
        uses = MOST_USES
    for index in range(uses):
        name = f"{key}#{index}"
        if name in target.tried:
            continue
        query = target.made.get(name) or state.variant(target.position, chain, round_, index=index)
        if query is not None and query.is_proved and query.text not in target.seen:
            target.made[name] = query
            return name
        target.tried.add(name)
    target.tried.add(key)  # no other use of it is left
    return ""
