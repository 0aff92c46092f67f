"""All rounds and control arms against each defense in turn, and again with other seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from itertools import permutations
from typing import TYPE_CHECKING

from guardmark.adaptive import controls
from guardmark.adaptive.asker import AskContext, Interrupted
from guardmark.adaptive.attacker import ModelRound, run_attacker, run_rewording
from guardmark.adaptive.beliefs import Background
from guardmark.adaptive.defense_asker import DefenseAsker
from guardmark.adaptive.diagnosis import UNKNOWN, diagnose, measure_baseline
from guardmark.adaptive.model_asker import ModelAsker
from guardmark.adaptive.search import (
    ALONE_VERSION,
    SEARCH_VERSION,
    SEEDS_AGAIN,
    search,
    spend_rest,
)
from guardmark.adaptive.state import SearchState
from guardmark.adaptive.target import TargetAsker, by_attack, measure_effects
from guardmark.attacks.application import derive_seed
from guardmark.attacks.battery import BATTERY_VERSION, Lock, lock_digest
from guardmark.attacks.contract import GradientDefense
from guardmark.attacks.talks import is_talk
from guardmark.canon.steps import CANON_VERSION
from guardmark.config.deadline import Patience
from guardmark.core.errors import IncomparableRuns
from guardmark.core.values import dataclass
from guardmark.defenses.guard import as_guard, source_of
from guardmark.engine.plan import Spending, refuse_sessions
from guardmark.engine.run_monitor import Progress
from guardmark.engine.supervision import StopSignal
from guardmark.store.layers import (
    ADAPTIVE,
    FINDINGS_PREFIX,
    LEFT_OUT,
    REPAIRED_PREFIX,
    REPEATED_ARMS,
    TARGET,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guardmark.adaptive.asker import TryKey
    from guardmark.adaptive.model_asker import AttackerPlan
    from guardmark.adaptive.state import Account, Query, ReadingRule, Target
    from guardmark.adaptive.target import ProtectedTarget
    from guardmark.attacks.contract import GradientAttack, OperatorChain
    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Sample
    from guardmark.defenses.guard import AnyDefense
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter
    from guardmark.store.tries import TryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePlan:
    """What an adaptive measurement does.

    Attributes:
        defenses: What is attacked, in any form.
        seed: What chance is drawn from.
        budget: Search calls for each attack.
        concurrency: Calls in flight at once.
        trace: A stored measurement that is replayed: nobody is asked.
        target: What the defenses protect; None where it is not measured.
        attacker: Models that help the attacker; None where none does.
        shares_memory: Whether what one attack learns serves the others.
        gradient: A search by gradients, for defenses that have them.
        left_out: Defenses that are not attacked, each with the reason.
        seeds: How many seeds the search is carried out with.
        battery: Version of the fixed list.
        is_foreign: Whether nobody but a run folder names what is asked.
        spending: Who counts the calls, and what they cost.
        own: Operators of the user, each as a chain of one.
        has_repair: Whether a repair is looked for, and attacked again.
        has_controls: Whether control arms and benign texts are asked about.
        reading: What a rewritten attack must keep beside its tier.
    """

    defenses: Sequence[AnyDefense]
    seed: int
    budget: int
    concurrency: int = 16
    trace: Mapping[TryKey, TryRecord] | None = None
    target: ProtectedTarget | None = None
    attacker: AttackerPlan | None = None
    shares_memory: bool = True
    gradient: GradientAttack | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 1
    battery: str = BATTERY_VERSION
    is_foreign: bool = False
    spending: Spending = field(default_factory=Spending)
    own: tuple[OperatorChain, ...] = ()
    has_repair: bool = True
    has_controls: bool = True
    reading: ReadingRule | None = None

    @property
    def lock(self) -> Lock:
        """What `battery.lock` says of the search and of the attacker model."""
        attacker: tuple[tuple[str, str], ...] = ()
        if self.attacker is not None:
            attacker = self.attacker.lock
        return Lock(
            battery=self.battery,
            attacker=attacker,
            shares_memory=self.shares_memory,
            seeds=self.seeds,
            own=tuple(_sources_of(self.own)),
        )

    @property
    def settings(self) -> dict[str, object]:
        """What tries of two runs must share to be mixed, as JSON values."""
        search_version = ALONE_VERSION
        if self.shares_memory:
            search_version = SEARCH_VERSION
        values: dict[str, object] = {
            "kind": "adaptive",
            "battery": self.battery,
            "lock": lock_digest(self.lock),
            "search": search_version,
            "canon": CANON_VERSION,
            "budget": self.budget,
            "seed": self.seed,
            "memory": self.lock.memory,
        }
        if self.attacker is not None:
            values["attacker"] = {**self.attacker.identity, **self.attacker.sizes}
        if self.gradient is not None:
            values["gradient"] = self.gradient.name
        if self.seeds > 1:
            values["seeds"] = self.seeds
        if not self.has_repair:
            values["repair"] = False
        if not self.has_controls:
            values["controls"] = False
        if self.reading is not None:
            values["reading"] = self.reading.name
        return values


def _sources_of(chains: Sequence[OperatorChain]) -> Iterator[tuple[str, str]]:
    """Yield each operator of chains with the hash of what it is made of."""
    for chain in chains:
        for arm in chain.arms:
            table_digest = ""
            if arm.operator.table_digest is not None:
                table_digest = arm.operator.table_digest()
            yield arm.operator.key, table_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSummary:
    """What an adaptive measurement did."""

    calls: Mapping[tuple[str, Account], int]
    is_interrupted: bool


@dataclass(slots=True, kw_only=True)
class _Attack:
    """One defense under attack."""

    state: SearchState
    defense: DefenseAsker
    models: ModelAsker | None = None
    by_model: ModelRound | None = None
    known: Background = field(default_factory=Background)
    wins: list[Query] = field(default_factory=list)
    passed: dict[int, tuple[Query, ...]] = field(default_factory=dict)


def check_settings(plan: AdaptivePlan, reader: RecordReader) -> None:
    """Refuse to mix tries that do not belong together."""
    before = dict(reader.layer_settings(ADAPTIVE))
    now = plan.settings
    differences = []
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            differences.append(f"{name}: {before.get(name)!s:.16}, now {now.get(name)!s:.16}")
    if before and differences:
        raise IncomparableRuns(
            f"The tries in {reader.path} differ in settings ({'; '.join(differences)}).\n"
            "Next: use the same budget, seeds and version, or measure in a new run."
        )


async def run_adaptive(
    plan: AdaptivePlan,
    writer: RecordWriter,
    samples: Sequence[Sample],
    *,
    earlier: Mapping[TryKey, TryRecord] | None = None,
    stop: StopSignal | None = None,
    progress: Progress | None = None,
) -> AdaptiveSummary:
    """Attack each defense, controls included; answers alone decide the order of questions."""
    guards = [as_guard(defense) for defense in plan.defenses]
    refuse_sessions(guards, "in an adaptive attack")
    writer.add_layer(ADAPTIVE, plan.settings)
    if plan.left_out:
        left_out = {"kind": "adaptive-left-out", "defenses": dict(plan.left_out)}
        writer.add_layer(LEFT_OUT, left_out)
    if plan.target is not None:
        writer.add_layer(TARGET, plan.target.settings)
    stored = earlier or {}
    if plan.trace is not None:
        stored = plan.trace
    context = AskContext(
        writer=writer,
        samples=samples,
        stop=stop or StopSignal(),
        concurrency=plan.concurrency,
        stored=stored,
        is_replay=plan.trace is not None,
        patience=Patience(is_foreign=plan.is_foreign),
        progress=progress or Progress(),
        spending=plan.spending,
    )
    attacks = [_attack(plan, guard, context) for guard in guards]
    target = None
    if plan.target is not None:
        target = TargetAsker(plan.target, context)
    is_interrupted = False
    try:
        await _carry_out(plan, attacks, target)
    except Interrupted:
        is_interrupted = True
    finally:
        writer.note_head()
    return AdaptiveSummary(calls=dict(sorted(context.calls.items())), is_interrupted=is_interrupted)


def _attack(plan: AdaptivePlan, guard: Guard, context: AskContext) -> _Attack:
    """Set up what an attack on one defense needs; models only where the plan has them."""
    models = None
    if plan.attacker is not None:
        live = context
        if context.is_replay:  # a trace holds no replies of models: they are asked again
            live = replace(context, is_replay=False, stored={})
        models = ModelAsker(guard.name, plan.attacker, live)
    return _Attack(
        state=SearchState(
            samples=context.samples,
            seed=plan.seed,
            budget=plan.budget,
            shares_memory=plan.shares_memory,
            battery=plan.battery,
            own=plan.own,
            reading=plan.reading,
            has_turns=guard.capabilities.reads_talks,
        ),
        defense=DefenseAsker(guard, context),
        models=models,
    )


async def _carry_out(
    plan: AdaptivePlan, attacks: Sequence[_Attack], target: TargetAsker | None
) -> None:
    """Attack each defense, then replay wins on others, repeat with seeds, and ask the target."""
    for attack in attacks:
        await _search_wins(attack)
        if plan.has_controls:
            await _control(attack)
        await _follow_gradient(attack, plan.gradient)
        if plan.has_repair:
            await _repair(attack)
    for attack, other in permutations(attacks, 2):
        steps = controls.run_transfer(attack.state, other.wins, source=other.defense.asker.name)
        await attack.defense.drive(steps)
    for turn in range(2, plan.seeds + 1):
        for attack in attacks:
            await _repeat(attack, turn)
    if target is not None:
        passes = {attack.defense.asker.name: attack.passed for attack in attacks}
        await measure_effects(target, passes, seed=plan.seed)


async def _search_wins(attack: _Attack) -> None:
    """Carry out everything the attacker does, and note what got through."""
    state = attack.state
    targets = await _open_and_search(attack, layer=f"{FINDINGS_PREFIX}{attack.defense.asker.name}")
    record = attack.known.record
    won = {target.position: target.win for target in targets if target.win is not None}
    by_position = {**record.wins, **won}
    attack.wins = [by_position[position] for position in sorted(by_position)]
    passes: Iterable[Query] = record.passes
    if state.is_random:  # a pass of a random defense counts only where it was confirmed
        passes = record.wins.values()
    attack.passed = by_attack((*won.values(), *passes))
    attack.defense.context.writer.flush()


async def _control(attack: _Attack) -> None:
    """Carry out the arms that learn nothing, and ask about benign texts and wrappers."""
    state, drive = attack.state, attack.defense.drive
    for steps in (
        controls.run_null(state),
        controls.run_blind(state),
        controls.run_twin(state, attack.wins),
        controls.run_wrappers(state, controls.tried_chains(attack.wins, state)),
    ):
        await drive(steps)
    if attack.by_model is not None and attack.by_model.tried:
        await run_rewording(attack.by_model)
    attack.defense.context.writer.flush()


async def _open_and_search(attack: _Attack, *, layer: str, **more: object) -> list[Target]:
    """Carry out everything the attacker does; findings are the settings of a layer."""
    state, defense, drive = attack.state, attack.defense, attack.defense.drive
    flags = await drive(measure_baseline(state))
    diagnosis = UNKNOWN
    if state.shares_memory:
        diagnosis = await drive(diagnose(state))
    labels = Counter(finding.label for finding in diagnosis.findings)
    findings = {
        "kind": "adaptive-findings",
        "flags": flags,
        "diagnosis": diagnosis.label,
        "examined": len(diagnosis.findings),
        "labels": dict(sorted(labels.items())),
        "folds": diagnosis.folds,
        "is_gated": diagnosis.is_gated,
        "signs": diagnosis.signs,
        "has_scores": bool(state.scores),
        "left_out_over_turns": state.left_out_over_turns,
        **more,
    }
    defense.context.writer.add_layer(layer, findings)
    record = await drive(controls.run_battery(state))
    answers = dict(defense.asker.known[ADAPTIVE])  # another seed need not pay for them again
    attack.known = Background(diagnosis=diagnosis, record=record, answers=answers)
    return await _search(attack)


async def _repair(attack: _Attack) -> None:
    """Choose a repair, and attack the repaired defense as the defense itself was attacked."""
    state, asker = attack.state, attack.defense
    bypasses = list(asker.bypasses.values())
    if state.is_random:
        bypasses = [win for win in attack.wins if not is_talk(win.chain)]
    repair = await asker.drive(controls.run_repair(state, bypasses, asker.blocked))
    asker.bypasses, asker.blocked = {}, {}
    if repair.steps:
        again = _Attack(
            state=replace(state, seed=derive_seed(state.seed, 0)),
            defense=DefenseAsker(asker.guard, asker.context, repair=repair.steps),
        )
        await _open_and_search(
            again,
            layer=f"{REPAIRED_PREFIX}{asker.asker.name}",
            steps=[step.value for step in repair.steps],
            refused=list(repair.refused),
            checked=repair.checked,
            seeds=SEEDS_AGAIN,
        )
        for turn in range(2, SEEDS_AGAIN + 1):
            await again.defense.drive(search(again.state.repeated(turn), again.known))
    asker.context.writer.flush()


async def _follow_gradient(attack: _Attack, method: GradientAttack | None) -> None:
    """Carry out the arm with gradient access where the defense has gradients."""
    defense = source_of(attack.defense.guard)
    if method is None or not isinstance(defense, GradientDefense):
        return
    access = defense.gradients()
    if access is not None:
        await attack.defense.drive(controls.run_gradient(attack.state, method, access))
        attack.defense.context.writer.flush()


async def _search(attack: _Attack) -> list[Target]:
    """Carry out rounds 2 to 4, and round 5 within the same budget where there is a model."""
    state, drive, models, known = attack.state, attack.defense.drive, attack.models, attack.known
    kept_for_model = 0
    if models is not None:
        kept_for_model = models.plan.tries(state.budget)
    by_rules = replace(state, budget=state.budget - kept_for_model)
    targets = await drive(search(by_rules, known))
    if models is not None:
        attack.by_model = ModelRound(
            state=state, diagnosis=known.diagnosis, models=models, defenses=attack.defense
        )
        await run_attacker(attack.by_model, targets)
        await drive(spend_rest(state, targets, known))
    return targets


async def _repeat(attack: _Attack, turn: int) -> None:
    """Carry out rounds 2 to 4 and their control arms with another seed, which pays for itself."""
    state, drive = attack.state.repeated(turn), attack.defense.drive
    answers = attack.defense.asker.known
    answers[state.layer()] = dict(attack.known.answers)
    await drive(search(state, attack.known))
    await drive(controls.run_null(state))
    await drive(controls.run_blind(state))
    for arm in REPEATED_ARMS:  # nothing more is asked there
        answers.pop(state.layer(arm), None)
    attack.defense.context.writer.flush()
