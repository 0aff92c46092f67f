"""Control arms, and what the evaluator asks: benign twin, wrappers, transfer, repair."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.beliefs import BatteryRecord
from guardmark.adaptive.comprehension import canaries
from guardmark.adaptive.state import Account, Query, asked_in_turn
from guardmark.attacks.application import tier_of
from guardmark.attacks.battery import BATTERY_VERSION, battery
from guardmark.attacks.catalogue import parse_chain
from guardmark.attacks.contract import Use
from guardmark.attacks.talks import is_talk, turns_of
from guardmark.canon.steps import REPAIR_STEPS, apply_steps
from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass
from guardmark.defenses.canonical import WHOLE, steps_of
from guardmark.store.layers import BLIND, GRADIENT, NULL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from guardmark.adaptive.state import SearchState, Steps, TryAnswer
    from guardmark.attacks.contract import GradientAttack, Operator, OperatorChain
    from guardmark.canon.steps import Step
    from guardmark.core.sample import Sample
    from guardmark.inference.gradients import EmbeddingGradients

_DRAWS = 20


def run_battery(state: SearchState) -> Steps[BatteryRecord]:
    """Try every chain of the fixed list on every attack that was blocked at first."""
    record = BatteryRecord()
    for chain in state.fixed_list():
        batch = state.variants(state.blocked, chain, "R1", Account.BATTERY)
        answers = yield batch
        won = yield from state.confirm(batch, answers)
        for i, query in enumerate(batch):
            if not query.is_proved or answers[i].is_blocked is None:
                continue
            if answers[i].passed:
                record.passes.append(query)
            record.outcomes.setdefault(chain.key, {})[query.sample] = i in won
            if i in won:
                record.wins.setdefault(query.sample, query)
    return record


def run_null(state: SearchState) -> Steps[None]:
    """Send each blocked text again, as often as the search may try: what this gains is chance."""
    live = list(state.blocked)
    for _ in range(state.budget):
        if not live:
            return
        batch = [state.plain(index, Account.SEARCH, "null", tier="V0", arm=NULL) for index in live]
        answers = yield batch
        won = yield from state.confirm(batch, answers)
        live = [index for number, index in enumerate(live) if number not in won]


def run_blind(state: SearchState) -> Steps[None]:
    """Try arms drawn at random to the end of the budget, beyond a bypass, learning nothing."""
    chains = state.chains()
    draws = {}
    for position in state.blocked:
        draws[position] = state.draw("blind", state.samples[position].id)
    left = dict.fromkeys(state.blocked, state.budget)
    for index in range(state.budget):
        batch = []
        for position in state.blocked:
            if not left[position]:
                continue
            for _ in range(_DRAWS):
                chain = draws[position].choice(chains)
                if turns_of(chain) > left[position]:
                    continue
                query = state.variant(position, chain, "blind", index=index, arm=BLIND)
                if query is not None and query.is_proved:
                    batch.append(query)
                    break
        if not batch:
            return
        answers = yield from asked_in_turn(batch)
        yield from state.confirm(batch, answers)
        for query, answer in zip(batch, answers, strict=True):
            left[query.sample] -= answer.calls


def run_gradient(
    state: SearchState, attack: GradientAttack, access: EmbeddingGradients
) -> Steps[None]:
    """Let an attack propose variants of every blocked attack, each checked like any other."""
    live: dict[int, Iterator[Query]] = {}
    for position in state.blocked:
        live[position] = _variants(
            state.samples[position], attack, access, at=position, most=state.budget
        )
    while live:
        batch = []
        for position, variants in list(live.items()):
            query = next(variants, None)
            if query is None:
                del live[position]
            else:
                batch.append(query)
        if not batch:
            return
        answers = yield batch
        proved: list[Query] = []
        answers_to_proved: list[TryAnswer] = []
        for query, answer in zip(batch, answers, strict=True):
            if query.is_proved:
                proved.append(query)
                answers_to_proved.append(answer)
        held = yield from state.confirm(proved, answers_to_proved)
        for number in held:
            del live[proved[number].sample]


def _variants(
    sample: Sample, attack: GradientAttack, access: EmbeddingGradients, *, at: int, most: int
) -> Iterator[Query]:
    """Yield what may be asked, at most as many as were proposed."""
    original, seen = sample.prompt.text, {sample.prompt.text}
    for number, text in enumerate(attack.propose(sample, access, most=most), start=1):
        tier = tier_of(original, text, sample.must_keep)
        if tier is not None and text not in seen:
            seen.add(text)
            yield Query(at, text, Account.SEARCH, "gradient", attack.name, tier.value, GRADIENT)
        if number == most:
            return


_MOST_ASKED: Final = 200  # texts of one kind
_MOST_WINNERS: Final = 12


def run_twin(state: SearchState, wins: Sequence[Query]) -> Steps[None]:
    """Do to benign texts what was done to attacks: same chains, parameters and seeds."""
    positions = _some(state, state.benign, "twin")
    for chain in tried_chains(wins, state):
        yield from asked_in_turn(state.variants(positions, chain, "twin", Account.TWIN))


def run_transfer(state: SearchState, wins: Sequence[Query], *, source: str) -> Steps[None]:
    """Replay what won against another defense, each once."""
    blocked = set(state.blocked)
    batch = []
    for win in wins:
        if win.sample in blocked and (state.has_turns or not is_talk(win.chain)):
            round_ = f"from {source}"
            batch.append(Query(win.sample, win.text, Account.TRANSFER, round_, win.chain, win.tier))
    yield from asked_in_turn(batch)


def _some(state: SearchState, positions: tuple[int, ...], purpose: str) -> list[int]:
    return sorted(state.draw(purpose).sample(positions, min(len(positions), _MOST_ASKED)))


def tried_chains(wins: Iterable[Query], state: SearchState) -> list[OperatorChain]:
    """Return what is done to benign texts: the battery, and the most frequent winners."""
    # Neither parts of a text nor what a model wrote can be done to another text.
    keys = [win.chain for win in wins if " [" not in win.chain]
    return battery_and(keys, most=_MOST_WINNERS, version=state.battery, own=state.own)


def battery_and(
    keys: Iterable[str],
    *,
    most: int | None = None,
    version: str = BATTERY_VERSION,
    own: Sequence[OperatorChain] = (),
) -> list[OperatorChain]:
    """Return the fixed list and the other chains that are named, the frequent ones first."""
    chains = {chain.key: chain for chain in (*battery(version), *own)}
    own_operators: list[Operator] = []
    for chain in own:
        own_operators += [arm.operator for arm in chain.arms]
    counts = Counter(keys)
    others = [key for key in counts if key and key not in chains]
    others.sort(key=lambda key: (-counts[key], key))
    for key in others[:most]:
        with suppress(ConfigError):  # written by an attacker model: no operator to use
            chains[key] = parse_chain(key, tuple(own_operators))
    return list(chains.values())


WRAPPER_ROUND: Final = "wrapper"


def run_wrappers(state: SearchState, chains: Sequence[OperatorChain]) -> Steps[None]:
    """Put harmless sentences, in place of benign texts, into each wrapper and into none."""
    neutral = [f"{each.text}." for each in canaries()]
    plain = list(zip(state.benign or state.blocked, neutral, strict=False))
    wrapped = [chain for chain in chains if _wrap(chain, neutral[0]) is not None]
    if not plain or not wrapped:
        return
    yield [Query(position, text, Account.WRAPPER, WRAPPER_ROUND) for position, text in plain]
    for chain in wrapped:
        batch = []
        for position, text in plain:
            wrapped_text = _wrap(chain, text)
            if wrapped_text is not None:
                query = Query(position, wrapped_text, Account.WRAPPER, WRAPPER_ROUND, chain.key)
                batch.append(query)
        yield batch


def _wrap(chain: OperatorChain, text: str) -> str | None:
    """Return a text in the wrapper of a chain, or None where it has none."""
    inner = text
    for arm in chain.arms:
        if arm.operator.wrap is not None:
            inner = arm.operator.wrap(inner, Use(arm.settings, b""))
    if inner == text:
        return None
    return inner


REPAIR: Final = "repair"  # round of bypasses and benign texts, cleaned
HELD: Final = "repair, held"  # round of attacks blocked as they are, cleaned: may any pass now?
KNOWN: Final = "repair, known"  # round of every known bypass, cleaned in the way that was chosen
TRIED: Final = "repair, tried"  # round of every blocked text: what the chosen way would let in
JOINT: Final = "+"  # between the steps of a repair of several
SINGLE: Final = (*(step.value for step in REPAIR_STEPS), WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The cleaning that was chosen; no steps where none helps.

    Attributes:
        steps: The cleaning; empty where none helps.
        refused: Steps that would let a blocked text in.
        checked: Blocked texts of which none passes once cleaned.
    """

    steps: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()
    checked: int = 0


def run_repair(
    state: SearchState, bypasses: Sequence[Query], blocked: Collection[tuple[int, str]]
) -> Steps[Repair]:
    """Choose a cleaning on some of each kind, then ask about every bypass and every blocked text.

    A step that lets any blocked text in is refused, however much it helps.
    """
    draw = state.draw(REPAIR)
    some = draw.sample(bypasses, min(len(bypasses), _MOST_ASKED))
    if not some:
        return Repair()
    asked = [(win.sample, win.text, REPAIR) for win in some]
    for round_, positions in ((REPAIR, state.quiet), (HELD, state.blocked)):
        for position in _some(state, positions, round_):
            asked.append((position, state.samples[position].prompt.text, round_))
    refused: list[str] = []
    net, useful = yield from _try_steps(state, asked, refused)
    chosen = max(useful, key=net.__getitem__, default="")
    steps = yield from _opening_none(chosen, blocked, refused)
    if not steps:
        return Repair(refused=tuple(refused))
    every = [(win.sample, win.text, KNOWN) for win in bypasses]
    to_ask = list(every)
    if _joined(steps) not in net:
        to_ask += asked
    answers = yield _cleaned(to_ask, _joined(steps))
    if not any(answer.is_blocked for answer in answers[: len(every)]):
        return Repair(refused=tuple(refused))  # what helped was refused
    return Repair(steps=steps, refused=tuple(refused), checked=len(blocked))


def _try_steps(
    state: SearchState, asked: Sequence[tuple[int, str, str]], refused: list[str]
) -> Steps[tuple[dict[str, float], list[str]]]:
    """Ask about texts cleaned by each step, then by all that help; note those that let texts in.

    Returns what each is worth, and the ones that help and let nothing in.
    """
    net: dict[str, float] = {}
    for name in SINGLE:
        batch = _cleaned(asked, name)
        answers = yield batch
        net[name], opened = _net(batch, answers, state)
        if opened:
            refused.append(name)
    useful = [name for name in SINGLE if net[name] > 0 and name not in refused]
    together = _joined(step for step in steps_of(useful) if step not in refused)
    if together and together not in net:
        batch = _cleaned(asked, together)
        answers = yield batch
        net[together], opened = _net(batch, answers, state)
        if not opened:
            useful.append(together)
    return net, useful


def _joined(steps: Iterable[Step]) -> str:
    return JOINT.join(step.value for step in steps)


def _opening_none(
    chosen: str, blocked: Collection[tuple[int, str]], refused: list[str]
) -> Steps[tuple[Step, ...]]:
    """Drop steps until none of the blocked texts passes once cleaned."""
    steps = steps_of(filter(None, chosen.split(JOINT)))
    asked = [(index, text, TRIED) for index, text in blocked]
    while steps:
        fresh: dict[tuple[int, str], Query] = {}
        for query in _cleaned(asked, _joined(steps)):
            if (query.sample, query.text) not in blocked:
                fresh[query.sample, query.text] = query
        answers = yield list(fresh.values())
        let_in = {text for text, answer in zip(fresh, answers, strict=True) if answer.passed}
        opened = []
        for index, text, round_ in asked:
            if (index, apply_steps(text, steps)) in let_in:
                opened.append((index, text, round_))
        if not opened:
            break
        guilty = yield from _guilty_steps(steps, opened)
        for step in guilty:
            if step.value not in refused:
                refused.append(step.value)
        steps = tuple(step for step in steps if step not in guilty)
    return steps


def _guilty_steps(
    steps: tuple[Step, ...], opened: Sequence[tuple[int, str, str]]
) -> Steps[list[Step]]:
    """Return the steps that let a text in by themselves; the last where only all together do."""
    guilty = []
    for step in steps:
        answers = yield _cleaned(opened, step.value)
        if any(answer.passed for answer in answers):
            guilty.append(step)
    return guilty or [steps[-1]]


def _cleaned(asked: Sequence[tuple[int, str, str]], name: str) -> list[Query]:
    """Return the questions about texts that were cleaned by the steps of a name."""
    steps = steps_of(name.split(JOINT))
    queries = []
    for index, text, round_ in asked:
        queries.append(Query(index, apply_steps(text, steps), Account.REPAIR, round_, name))
    return queries


def _net(
    batch: Sequence[Query], answers: Sequence[TryAnswer], state: SearchState
) -> tuple[float, int]:
    """Return the share of bypasses blocked less that of benign texts lost; and attacks let in."""
    closed, lost = list[bool](), list[bool]()
    opened = 0
    for query, answer in zip(batch, answers, strict=True):
        if answer.is_blocked is None:
            continue
        if query.round == HELD:
            if answer.passed:
                opened += 1
        elif state.samples[query.sample].is_attack:
            closed.append(answer.is_blocked)
        else:
            lost.append(answer.is_blocked)
    return _share(closed) - _share(lost), opened


def _share(marks: Sequence[bool]) -> float:
    if not marks:
        return 0.0
    return sum(marks) / len(marks)
