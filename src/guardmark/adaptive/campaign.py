"""All rounds, control arms and afterthoughts, against each defense in turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.adaptive.attacker import run_attacker
from guardmark.adaptive.baseline import measure_baseline
from guardmark.adaptive.caller import Caller, Interrupted
from guardmark.adaptive.controls import run_transfer, run_twin, tried_chains
from guardmark.adaptive.diagnosis import diagnose
from guardmark.adaptive.effects import by_attack, measure_effects
from guardmark.adaptive.gradient import run_gradient
from guardmark.adaptive.independent_search import UNKNOWN, spend_rest_alone
from guardmark.adaptive.model_caller import ModelCaller
from guardmark.adaptive.repair import run_repair
from guardmark.adaptive.repeats import RepeatStart, repeat_search, search_by_rules
from guardmark.adaptive.rewording import run_rewording
from guardmark.adaptive.rounds import run_battery, run_blind, run_null
from guardmark.adaptive.search import SEARCH_VERSION, spend_rest
from guardmark.adaptive.state import SearchState
from guardmark.adaptive.target_caller import TargetCaller
from guardmark.adaptive.trial import watched
from guardmark.adaptive.wrapper import run_wrappers
from guardmark.attacks.battery import BATTERY_VERSION, Lock, lock_digest
from guardmark.canon.steps import CANON_VERSION
from guardmark.core.errors import IncomparableRuns
from guardmark.core.layers import ADAPTIVE, FINDINGS_PREFIX, LEFT_OUT, TARGET
from guardmark.core.protocols import GradientDefense
from guardmark.engine.run_monitor import StopSignal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.adaptive.attacker_plan import AttackerPlan
    from guardmark.adaptive.caller import Place, StoredAnswer
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.state import Target
    from guardmark.adaptive.target import ProtectedTarget
    from guardmark.adaptive.trial import Account, Query
    from guardmark.core.protocols import GradientAttack
    from guardmark.core.sample import Sample
    from guardmark.engine.plan import AnyDefense
    from guardmark.store.records import RecordReader, RecordWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePlan:
    """What an adaptive measurement does."""

    defenses: tuple[AnyDefense, ...]
    seed: int
    budget: int
    concurrency: int = 16
    trace: Mapping[str, Mapping[Place, StoredAnswer]] | None = None
    target: ProtectedTarget | None = None
    attacker: AttackerPlan | None = None
    shares_memory: bool = True
    gradient: GradientAttack | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 1

    @property
    def lock(self) -> Lock:
        """What `battery.lock` says of the search and of the attacker model."""
        attacker = () if self.attacker is None else self.attacker.lock
        return Lock(attacker=attacker, shares_memory=self.shares_memory, seeds=self.seeds)

    @property
    def settings(self) -> dict[str, object]:
        """What tries of two runs must share to be mixed, as JSON values."""
        said: dict[str, object] = {
            "kind": "adaptive",
            "battery": BATTERY_VERSION,
            "lock": lock_digest(self.lock),
            "search": SEARCH_VERSION,
            "canon": CANON_VERSION,
            "budget": self.budget,
            "seed": self.seed,
            "memory": self.lock.memory,
        }
        if self.attacker is not None:
            said["attacker"] = {**self.attacker.identity, **self.attacker.sizes}
        if self.gradient is not None:
            said["gradient"] = self.gradient.name
        if self.seeds > 1:
            said["seeds"] = self.seeds
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSummary:
    """What an adaptive measurement did."""

    calls: Mapping[tuple[str, Account], int]
    is_interrupted: bool


@dataclass(slots=True, kw_only=True)
class _Battle:
    """One defense under attack."""

    name: str
    caller: Caller
    scene: SearchState
    models: ModelCaller | None = None
    seeds: int = 1
    start: RepeatStart = field(default_factory=RepeatStart)
    wins: list[Query] = field(default_factory=list)
    passed: dict[int, tuple[Query, ...]] = field(default_factory=dict)
    record: dict[str, tuple[int, int]] = field(default_factory=dict)


def check_settings(plan: AdaptivePlan, reader: RecordReader) -> None:
    """Refuse to mix tries that do not belong together."""
    before = dict(reader.layer_settings(ADAPTIVE))
    now = plan.settings
    names = [*now, *(name for name in before if name not in now)] if before else []
    if changed := [name for name in names if before.get(name) != now.get(name)]:
        said = "; ".join(f"{n}: {before.get(n)!s:.16}, now {now.get(n)!s:.16}" for n in changed)
        raise IncomparableRuns(
            f"The tries in {reader.path} were made otherwise ({said}).\n"
            "Next: use the same budget, seeds and version, or measure in a new run."
        )


async def run_adaptive(
    plan: AdaptivePlan,
    writer: RecordWriter,
    samples: Sequence[Sample],
    *,
    earlier: Mapping[str, Mapping[Place, StoredAnswer]] | None = None,
    stop: StopSignal | None = None,
) -> AdaptiveSummary:
    """Attack each defense with everything there is, controls included.

    The order of questions depends on answers alone: any concurrency, an interruption and a
    replay give the same tries.
    """
    _register(plan, writer)
    ending = stop or StopSignal()
    battles = [
        _battle(plan, defense, writer=writer, samples=samples, stop=ending)
        for defense in plan.defenses
    ]
    known = plan.trace if plan.trace is not None else (earlier or {})
    for battle in battles:
        battle.caller.memory = known.get(battle.name, {})
    target = _target_caller(plan, writer, samples, ending)
    is_interrupted = False
    try:
        for battle in battles:
            await _fight(battle, writer)
            await _follow(battle, plan.gradient)
        await _transfer(battles)
        for turn in range(2, plan.seeds + 1):
            for battle in battles:
                await repeat_search(battle.scene, battle.caller, battle.start, turn=turn)
        if target is not None:
            found = {battle.name: battle.passed for battle in battles}
            await measure_effects(target, found, seed=plan.seed)
    except Interrupted:
        is_interrupted = True
    writer.note_head()
    calls: Counter[tuple[str, Account]] = Counter()
    for battle in battles:
        calls.update(battle.caller.calls)
        calls.update(battle.models.calls if battle.models is not None else {})
    if target is not None:
        calls.update(target.calls)
    return AdaptiveSummary(calls=dict(sorted(calls.items())), is_interrupted=is_interrupted)


def _register(plan: AdaptivePlan, writer: RecordWriter) -> None:
    """Say how tries are made, and at whom they are not."""
    writer.add_layer(ADAPTIVE, plan.settings)
    if plan.left_out:
        said = {"kind": "adaptive-left-out", "defenses": dict(plan.left_out)}
        writer.add_layer(LEFT_OUT, said)


def _target_caller(
    plan: AdaptivePlan, writer: RecordWriter, samples: Sequence[Sample], stop: StopSignal
) -> TargetCaller | None:
    if plan.target is None:
        return None
    writer.add_layer(TARGET, plan.target.settings)
    return TargetCaller(
        protected=plan.target,
        samples=samples,
        writer=writer,
        stop=stop,
        concurrency=plan.concurrency,
        is_replay=plan.trace is not None,
    )


def _battle(
    plan: AdaptivePlan,
    defense: AnyDefense,
    *,
    writer: RecordWriter,
    samples: Sequence[Sample],
    stop: StopSignal,
) -> _Battle:
    attacker = plan.attacker
    return _Battle(
        name=defense.name,
        seeds=plan.seeds,
        caller=Caller(
            defense=defense,
            samples=samples,
            writer=writer,
            stop=stop,
            concurrency=plan.concurrency,
            is_replay=plan.trace is not None,
        ),
        scene=SearchState(
            samples=samples,
            seed=plan.seed,
            budget=plan.budget,
            shares_memory=plan.shares_memory,
        ),
        models=None
        if attacker is None
        else ModelCaller(
            name=defense.name,
            plan=attacker,
            samples=samples,
            writer=writer,
            stop=stop,
            concurrency=plan.concurrency,
            memory=attacker.replies.get(defense.name, {}),
        ),
    )


async def _fight(battle: _Battle, writer: RecordWriter) -> None:
    scene, drive = battle.scene, battle.caller.drive
    baseline = await drive(measure_baseline(scene))
    diagnosis = await drive(diagnose(scene)) if scene.shares_memory else UNKNOWN
    writer.add_layer(f"{FINDINGS_PREFIX}{battle.name}", _findings(scene, baseline.flags, diagnosis))
    passes: list[Query] = []
    record = await drive(watched(run_battery(scene), passes))
    answers = battle.caller.known(ADAPTIVE) if battle.seeds > 1 else {}
    battle.start = RepeatStart(diagnosis=diagnosis, record=record, answers=answers)
    targets = await _search(battle)
    found = {target.position: target.win for target in targets if target.win is not None}
    battle.wins = [win for _, win in sorted({**record.wins, **found}.items())]
    # A pass of a random defense counts only where it was confirmed.
    held = record.wins.values() if scene.is_random else passes
    battle.passed = by_attack((*found.values(), *held))
    await drive(run_null(scene))
    await drive(run_blind(scene))
    await drive(run_twin(scene, battle.wins))
    await drive(run_wrappers(scene, tried_chains(battle.wins)))
    await drive(run_repair(scene, battle.wins))
    if battle.models is not None and battle.record:
        await run_rewording(
            scene,
            diagnosis,
            caller=battle.caller,
            models=battle.models,
            record=battle.record if scene.shares_memory else {},
        )
    battle.caller.flush()


async def _transfer(battles: Sequence[_Battle]) -> None:
    for battle in battles:
        for other in battles:
            if other is not battle:
                steps = run_transfer(battle.scene, other.wins, source=other.name)
                await battle.caller.drive(steps)


async def _follow(battle: _Battle, attack: GradientAttack | None) -> None:
    """Carry out the arm with gradient access where the defense has gradients."""
    defense = battle.caller.defense
    if attack is None or not isinstance(defense, GradientDefense):
        return
    access = defense.gradients()
    if access is not None:
        await battle.caller.drive(run_gradient(battle.scene, attack, access))
        battle.caller.flush()


async def _search(battle: _Battle) -> list[Target]:
    """Carry out rounds 2 to 4, and round 5 within the same budget where there is a model."""
    scene, drive, models = battle.scene, battle.caller.drive, battle.models
    diagnosis, record = battle.start.diagnosis, battle.start.record
    before = (
        scene if models is None else scene.within(scene.budget - models.plan.tries(scene.budget))
    )
    targets = await drive(search_by_rules(before, battle.start))
    if models is None:
        return targets
    battle.record = await run_attacker(
        scene, targets, diagnosis=diagnosis, caller=battle.caller, models=models
    )
    await drive(
        spend_rest(scene, targets, diagnosis=diagnosis, record=record)
        if scene.shares_memory
        else spend_rest_alone(scene, targets)
    )
    return targets


def _findings(scene: SearchState, flags: Sequence[str], diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "kind": "adaptive-findings",
        "flags": list(flags),
        "diagnosis": diagnosis.label,
        "examined": len(diagnosis.findings),
        "labels": dict(sorted(Counter(finding.label for finding in diagnosis.findings).items())),
        "folds": diagnosis.folds,
        "has_scores": scene.has_scores,
    }
