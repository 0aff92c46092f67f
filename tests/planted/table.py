"""What the attacker comes to against a planted defense: one row of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from tests.planted.defenses import Planted, Rule
from tests.planted.references import NEVER, bandit, best_of_n, greedy

from guardmark.adaptive import controls
from guardmark.adaptive.beliefs import Background
from guardmark.adaptive.diagnosis import diagnose, measure_baseline
from guardmark.adaptive.search import search
from guardmark.adaptive.state import Account, Query, SearchState, Steps, T, TryAnswer
from guardmark.analysis.defense.counts import grouped_difference
from guardmark.canon.steps import apply_steps
from guardmark.core.estimate import Difference
from guardmark.core.sample import Sample
from guardmark.store.layers import ADAPTIVE, BLIND, NULL


@dataclass(slots=True)
class Asked:
    """Answers by a rule, and everything that was asked."""

    rule: Rule
    tries: list[tuple[Query, bool]] = field(default_factory=list)

    def drive(self, steps: Steps[T]) -> T:
        """Carry out a procedure to its end."""
        answers: list[TryAnswer] | None = None
        while True:
            try:
                batch = next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:
                result: T = end.value
                return result
            answers = [self._answer(query) for query in batch]

    def _answer(self, query: Query) -> TryAnswer:
        is_blocked, score = self.rule(query.text)
        self.tries.append((query, is_blocked))
        return TryAnswer(is_blocked=is_blocked, score=score, number=len(self.tries))

    def firsts(self, layer: str, places: Sequence[int]) -> list[int]:
        """Return the number of the first proved try of an arm that passed, for each attack."""
        count, first = dict.fromkeys(places, 0), dict.fromkeys(places, NEVER)
        for query, is_blocked in self.tries:
            if query.layer == layer and query.account is Account.SEARCH:
                count[query.sample] += 1
                if not is_blocked and query.is_proved:
                    first[query.sample] = min(first[query.sample], count[query.sample])
        return [first[place] for place in places]

    def calls(self, *accounts: Account) -> int:
        """Count what was asked of the arm that learns."""
        return sum(q.account in accounts and q.layer == ADAPTIVE for q, _ in self.tries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the arms came to against one planted defense; every list is in the order of attacks."""

    name: str
    weakness: str
    label: str
    flags: tuple[str, ...]
    groups: list[int]
    static: list[int]
    blind: list[int]
    null: list[int]
    adaptive: list[int]  # with a budget of 64
    adaptive_16: list[int]  # with a budget of 16
    prior: int  # calls an attack for the fixed list and the diagnosis
    bandit: list[int]
    best_of_n: list[int]
    greedy: list[int]
    greedy_calls: int
    repair: str = ""
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    opened: int = 0

    def within(self, firsts: list[int], k: int, *, with_static: bool = False) -> list[bool]:
        """Mark attacks that fell by the k-th call, or to the fixed list where that counts."""
        static = self.static if with_static else [NEVER] * len(firsts)
        return [a <= k or b < NEVER for a, b in zip(firsts, static, strict=True)]

    def gain(self, first: list[bool], second: list[bool]) -> Difference:
        """Compare two marks of the same attacks, groups taken together."""
        return grouped_difference(
            np.array(first), np.array(second), groups=np.array(self.groups), confidence=0.95
        )


def share(marks: Sequence[bool]) -> float:
    """Return the share of marks; 0 of none."""
    return sum(marks) / len(marks) if marks else 0.0


def attacked(
    data: list[Sample], rule: Rule, *, budget: int, seed: int, shares_memory: bool = True
) -> tuple[SearchState, Asked, Background, list[str]]:
    """Carry out what the attacker does against a rule, as a measurement does."""
    state = SearchState(samples=data, seed=seed, budget=budget, shares_memory=shares_memory)
    asked = Asked(rule)
    flags = asked.drive(measure_baseline(state))
    known = Background()
    if shares_memory:
        diagnosis = asked.drive(diagnose(state))
        known = Background(diagnosis=diagnosis, record=asked.drive(controls.run_battery(state)))
    asked.drive(search(state, known))
    return state, asked, known, flags


def measure(
    each: Planted, *, seed: int = 1, budget: int = 64, has_repair: bool = True, most: int = 1000
) -> Row:
    """Attack a planted defense with every arm and both references."""
    data = each.data()[: most or None]
    state, asked, known, flags = attacked(data, each.start(), budget=budget, seed=seed)
    places = state.blocked
    prior = -(-asked.calls(Account.DIAGNOSIS, Account.BATTERY) // max(1, len(places)))
    asked.drive(controls.run_blind(state))
    asked.drive(controls.run_null(state))
    groups = {name: i for i, name in enumerate(dict.fromkeys(_group(data[p]) for p in places))}
    short, short_asked, _, _ = attacked(data, each.start(), budget=16, seed=seed)
    assert not each.is_steady or short.blocked == places
    attacks = [data[place] for place in places]
    followed = [greedy(each.start(), s, budget=64) for s in attacks] if each.is_scored else []
    row = Row(
        name=each.name,
        weakness=each.weakness,
        label=known.diagnosis.label,
        flags=tuple(flags),
        groups=[groups[_group(sample)] for sample in attacks],
        static=[1 if place in known.record.wins else NEVER for place in places],
        blind=asked.firsts(BLIND, places),
        null=asked.firsts(NULL, places),
        adaptive=asked.firsts(ADAPTIVE, places),
        adaptive_16=short_asked.firsts(ADAPTIVE, places),
        prior=prior,
        bandit=bandit(each.start(), attacks, budget=budget + prior, seed=seed),
        best_of_n=best_of_n(each.start(), attacks, budget=budget + prior, seed=seed),
        greedy=[first for first, _ in followed],
        greedy_calls=sum(calls for _, calls in followed),
    )
    return _repaired(row, each, state=state, asked=asked) if has_repair else row


def _group(sample: Sample) -> str:
    return sample.group or sample.id


def _repaired(row: Row, each: Planted, *, state: SearchState, asked: Asked) -> Row:
    """Repair the defense by what got through, and attack it again."""
    data = list(state.samples)
    sent = [(q, b) for q, b in asked.tries if q.account in {Account.BATTERY, Account.SEARCH}]
    bypasses = {(q.sample, q.text): q for q, b in sent if not b and q.is_proved}
    blocked = dict.fromkeys(
        (q.sample, q.text) for q, b in asked.tries if b and data[q.sample].is_attack
    )
    repair = asked.drive(controls.run_repair(state, list(bypasses.values()), blocked))
    if not repair.steps:
        return row
    inner = each.start()

    def rule(text: str) -> tuple[bool, float | None]:
        is_blocked, score = inner(text)
        return (is_blocked, score) if is_blocked else inner(apply_steps(text, repair.steps))

    again, second, known, _ = attacked(data, rule, budget=state.budget, seed=state.seed + 1)
    fell = set(known.record.wins) | {
        place
        for place, first in zip(again.blocked, second.firsts(ADAPTIVE, again.blocked), strict=True)
        if first < NEVER
    }
    return replace(
        row,
        repair=" + ".join(step.value for step in repair.steps),
        before=[min(a, b) for a, b in zip(row.static, row.adaptive, strict=True)],
        after=[1 if place in fell else NEVER for place in state.blocked],
        opened=sum(not rule(text)[0] for _, text in blocked),
    )
