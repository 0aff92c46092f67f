"""What the target model does with attacks as they are, and with what got through a defense."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.probe import probe
from guardmark.adaptive.target import Question
from guardmark.adaptive.trial import Account
from guardmark.attacks.battery import battery
from guardmark.attacks.catalogue import parse_chain
from guardmark.core.errors import ConfigError
from guardmark.core.layers import TARGET
from guardmark.core.record import RecordKey, Stage
from guardmark.engine.plan import NO_GUARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.adaptive.target_caller import TargetCaller
    from guardmark.adaptive.trial import Query
    from guardmark.attacks.contract import OperatorChain

    Found = Mapping[int, Sequence[Query]]

_UNTOLD: Final = 0.5  # as good a guess as any where no canary tells


async def measure_effects(caller: TargetCaller, found: Mapping[str, Found], *, seed: int) -> None:
    """Ask the target model about every attack, every operator and one bypass of each attack.

    An attack is sent as it is, without any guard (the undefended arm), and with one text that
    got through each defense: as many texts on both sides, so that the pairs are fair. Among
    several texts that got through, the one whose operators the target model reads best is
    sent; that is known from canaries alone, never from the attack itself.
    """
    attacks = [place for place, sample in enumerate(caller.samples) if sample.is_attack]
    await caller.ask(
        [
            Question(
                key=_key(NO_GUARD, place),
                text=caller.samples[place].prompt.text,
                account=Account.UNDEFENDED,
            )
            for place in attacks
        ]
    )
    read: dict[str, tuple[int, int]] = {}
    if caller.protected.canaries:
        passes = (query for wins in found.values() for each in wins.values() for query in each)
        read = await probe(caller, _chains(passes), seed=seed)
    for defense, wins in found.items():
        await caller.ask(
            [
                Question(
                    key=_key(defense, place),
                    text=best.text,
                    account=Account.EFFECT,
                    chain=best.chain,
                    tier=best.tier,
                )
                for place, passed in sorted(wins.items())
                if (best := _best_read(passed, read)) is not None
            ]
        )


def by_attack(passes: Iterable[Query]) -> dict[int, tuple[Query, ...]]:
    """Put what got through together by attack, each text once."""
    found: dict[int, dict[str, Query]] = {}
    for query in passes:
        found.setdefault(query.sample, {}).setdefault(query.text, query)
    return {place: tuple(texts.values()) for place, texts in found.items()}


def whole_chain(key: str) -> str:
    """Return the operators of a chain without the part of the text they were used on."""
    return key.partition(" [")[0]


def _key(defense: str, place: int) -> RecordKey:
    return RecordKey(defense=defense, sample=place, stage=Stage.TRY, layer=TARGET)


def _best_read(passed: Sequence[Query], read: Mapping[str, tuple[int, int]]) -> Query | None:
    """Choose what the target model reads best; the earlier one where nothing tells."""

    def share(query: Query) -> float:
        well, answered = read.get(whole_chain(query.chain), (0, 0))
        return well / answered if answered else _UNTOLD

    return max(passed, key=share, default=None)


def _chains(passes: Iterable[Query]) -> list[OperatorChain]:
    """Return the fixed list and every chain that got through anywhere, the frequent ones first."""
    chains = {chain.key: chain for chain in battery()}
    count = Counter(whole_chain(query.chain) for query in passes)
    for key in sorted(count, key=lambda name: (-count[name], name)):
        if key and key not in chains:
            try:
                chains[key] = parse_chain(key)
            except ConfigError:
                continue  # written by an attacker model: no operator to ask about
    return list(chains.values())
