"""Rounds 2 to 4: single operators, chains of them, and operators on the part that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.attacks.chain import Chain, may_follow
from guardmark.attacks.contract import Slot
from guardmark.engine.adaptive.bandit import Bandit, believe
from guardmark.engine.adaptive.span import spans_of
from guardmark.engine.adaptive.trial import Account, Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.engine.adaptive.diagnosis import Diagnosis
    from guardmark.engine.adaptive.scene import Scene, Target
    from guardmark.engine.adaptive.trial import Steps

    Pick = Callable[[Target, list[int]], tuple[Query, int] | None]

BEAM: Final = 4
_EXTENSIONS: Final = 12
_USES: Final = 2  # of a seeded chain on one attack; others give the same text again


def search(scene: Scene, diagnosis: Diagnosis) -> Steps[list[Target]]:
    """Look for a bypass of every attack that was blocked at first.

    All attacks under way take one try a wave; what a wave teaches is used in the next.

    Args:
        scene: After round 0.
        diagnosis: What the defense seems to be.

    Returns:
        Every attack with what got through, if anything did.
    """
    targets = scene.targets()
    half, most = scene.budget // 2, scene.budget
    bandit = Bandit(chains := scene.singles(), believe(chains, diagnosis))
    yield from _waves(scene, targets, bandit, round_="R2", until=half)
    pairs = _extend(bandit, [bandit.chains[i] for i in bandit.best(BEAM)], bandit)
    yield from _waves(scene, targets, pairs, round_="R3", until=half + most // 5)
    triples = _extend(pairs, [pairs.chains[i] for i in pairs.best(BEAM)], bandit)
    yield from _waves(scene, targets, triples, round_="R3", until=half + 3 * most // 10)
    yield from _narrow(scene, targets, bandit, diagnosis)
    yield from _waves(scene, targets, bandit, round_="R4", until=most)
    return targets


def spend_rest(scene: Scene, targets: list[Target], diagnosis: Diagnosis) -> Steps[None]:
    """Spend on single operators what another round left of the budget.

    So an attacker model that refuses or fails costs no attack its tries.

    Args:
        scene: Whole budget.
        targets: Every attack that was blocked at first.
        diagnosis: What the defense seems to be.
    """
    live = [target for target in targets if target.win is None and target.tries < scene.budget]
    bandit = Bandit(chains := scene.singles(), believe(chains, diagnosis))
    yield from _waves(scene, live, bandit, round_="R4", until=scene.budget)


def _extend(bandit: Bandit, seeds: list[Chain], singles: Bandit) -> Bandit:
    """Put the best single arms before and behind the best chains."""
    others = [singles.chains[i] for i in singles.best(_EXTENSIONS)]
    means = {chain.key: bandit.mean(i) for i, chain in enumerate(bandit.chains)}
    made: dict[str, tuple[Chain, float]] = {}
    for seed in seeds:
        for other in others:
            arm, mean = other.arms[0], means.get(seed.key, 0.5)
            if may_follow(seed, arm):
                chain = Chain(arms=(*seed.arms, arm))
                made.setdefault(chain.key, (chain, mean))
            if len(seed.arms) < 3 and _may_lead(other, seed):
                chain = Chain(arms=(arm, *seed.arms))
                made.setdefault(chain.key, (chain, mean))
    chains = [each[0] for each in made.values()]
    return Bandit(chains, [(0.5 + each[1], 1.5 - each[1]) for each in made.values()])


def _may_lead(first: Chain, rest: Chain) -> bool:
    chain = first
    for arm in rest.arms:
        if not may_follow(chain, arm):
            return False
        chain = Chain(arms=(*chain.arms, arm))
    return True


def _waves(
    scene: Scene, targets: list[Target], bandit: Bandit, *, round_: str, until: int
) -> Steps[None]:
    """Let every attack try chains as they are, until its budget for the round is spent."""

    def pick(target: Target, ranking: list[int]) -> tuple[Query, int] | None:
        for number in ranking:
            found = _next_use(scene, target, bandit.chains[number], round_=round_)
            if found is not None:
                return found, number
        return None

    yield from run_waves(scene, targets, bandit, pick=pick, round_=round_, until=until)


def _next_use(scene: Scene, target: Target, chain: Chain, *, round_: str) -> Query | None:
    """Make the next variant a chain gives of an attack, unless it was asked already."""
    key = chain.key
    uses = _USES if any(arm.operator.seeded for arm in chain.arms) else 1
    for index in range(uses):
        name = f"{key}#{index}"
        if name in target.tried:
            continue
        target.tried.add(name)
        query = scene.variant(
            target.position, chain, index=index, account=Account.SEARCH, round_=round_
        )
        if query is not None and query.text not in target.seen:
            target.seen.add(query.text)
            return query
    return None


def run_waves(
    scene: Scene, targets: list[Target], bandit: Bandit, *, pick: Pick, round_: str, until: int
) -> Steps[None]:
    """Give each attack under way one try a wave.

    Args:
        scene: What every round looks at.
        targets: Attacks; those with a win are left out.
        bandit: Learns at the end of each wave, in the order of the attacks.
        pick: Makes the next try of an attack, or None when it has none left.
        round_: For the records.
        until: Tries an attack may have spent at the end.
    """
    wave, live = 0, [t for t in targets if t.win is None and t.tries < until]
    while live:
        rankings = bandit.rankings(scene.draw(round_, until, wave), len(live))
        tries = [
            (target, *found)
            for i, target in enumerate(live)
            if (found := pick(target, rankings[i % len(rankings)])) is not None
        ]
        if not tries:
            return
        answers = yield [query for _, query, _ in tries]
        passes = [i for i, answer in enumerate(answers) if answer.passed]
        held = yield from scene.confirm([tries[i][1] for i in passes])
        won = {passes[i] for i in held}
        for i, (target, query, number) in enumerate(tries):
            target.tries += 1
            if answers[i].is_blocked is None:
                continue
            bandit.learn(number, passed=i in won)
            if i in won:
                target.win = query
        live = [t for t, _, _ in tries if t.win is None and t.tries < until]
        wave += 1


def _narrow(
    scene: Scene, targets: list[Target], bandit: Bandit, diagnosis: Diagnosis
) -> Steps[None]:
    """Round 4: change only the words that matter, by diagnosis or by score."""
    places = [
        i for i, chain in enumerate(bandit.chains) if chain.arms[0].operator.slot <= Slot.SURFACE
    ]
    local = Bandit(
        [bandit.chains[i] for i in places],
        [(0.5 + bandit.mean(i), 1.5 - bandit.mean(i)) for i in places],
    )
    live = [target for target in targets if target.win is None and target.tries < scene.budget]
    spans = yield from spans_of(scene, live, diagnosis)

    def pick(target: Target, ranking: list[int]) -> tuple[Query, int] | None:
        for number in ranking:
            chain = local.chains[number]
            for span in spans[target.position]:
                name = f"{chain.key}@{span}"
                if name in target.tried:
                    continue
                target.tried.add(name)
                query = scene.variant(
                    target.position,
                    chain,
                    index=0,
                    account=Account.SEARCH,
                    round_="R4",
                    span=span,
                )
                if query is not None and query.text not in target.seen:
                    target.seen.add(query.text)
                    return query, number
        return None

    until = scene.budget * 9 // 10
    yield from run_waves(scene, live, local, pick=pick, round_="R4", until=until)
