"""What a run has spent and met, and whether it may go on."""

from __future__ import annotations

from enum import StrEnum
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.core.manifest import Policy
from guardmark.core.outcome import ErrorKind
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.desk import Recorder
from guardmark.engine.progress import OUTCOMES
from guardmark.store.codes import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.outcome import Decision, Evidence
    from guardmark.core.protocols import StopRule
    from guardmark.engine.desk import PendingSample
    from guardmark.engine.plan import Plan
    from guardmark.engine.progress import Progress
    from guardmark.engine.stop import StopSignal
    from guardmark.store.records import RecordWriter
    from guardmark.store.samples import Chunk

_MALFORMED: Final = OUTCOME_CODE["malformed"]
_ERROR: Final = OUTCOME_CODE["error"]
_FLUSH_EVERY: Final = 250  # a commit of this size stalls calls in flight for about a millisecond


class Halt(StrEnum):
    """Why a run ends before its plan is done."""

    INTERRUPTED = "interrupted"
    BUDGET = "budget"
    TIME = "time"
    ERRORS = "errors"
    POLICY = "policy"
    EARLY = "early"


class RunMonitor:
    """Keeps the counts of a run and says when it must end."""

    def __init__(
        self,
        plan: Plan,
        writer: RecordWriter,
        *,
        progress: Progress,
        stop: StopSignal,
        stop_rule: StopRule | None,
    ) -> None:
        self.plan = plan
        self.writer = writer
        self.halt: Halt | None = None
        self.reason = ""
        self.calls = self.tokens = self.added = 0
        self.busy_ns = self.lag_ns = self.errors = 0
        self.cost = 0.0
        self._progress = progress
        self.stop = stop
        self._rule = stop_rule
        self._ended: set[str] = set()
        self._began = monotonic()

    def desk(
        self, name: str, stage: Stage, *, layer: str = FIRST_LAYER, repeat: int = 0
    ) -> Recorder:
        """Open the desk of a part; what is stored already is counted in."""
        lane = self.writer.lane(name, stage, layer=layer, repeat=repeat)
        shown = name if layer == FIRST_LAYER else layer
        tally = self._progress.tally(shown, stage)
        if stage is not Stage.WARMUP:
            tally.planned += self.writer.sample_count
            for index, count in enumerate(self.writer.stored.tally(lane)):
                tally.counts[index] += count
        return Recorder(lane, tally)

    @property
    def order(self) -> Sequence[int] | None:
        """Positions of samples as they are asked about; None for the order of the data.

        A rule that ends runs early says in which order it must see samples.
        """
        return None if self._rule is None else self._rule.order

    @property
    def has_rule(self) -> bool:
        """Whether a rule may end this run, or single defenses, early."""
        return self._rule is not None

    def is_done(self, desk: Recorder) -> bool:
        """Tell whether a rule says that a defense need not be asked any further."""
        if self._rule is None or not self._rule.is_done(desk.name):
            return False
        if desk.tally.done < desk.tally.planned:
            self._ended.add(desk.name)
        desk.tally.planned = desk.tally.done
        return True

    def note_early_end(self) -> None:
        """Note, when all work is done, that some defenses were not asked about everything."""
        if self._ended and self._rule is not None:
            names = ", ".join(sorted(self._ended))
            self.end(Halt.EARLY, self._rule.reason() or f"enough was seen of {names}")

    def note_lag(self, lag_ns: int) -> None:
        """Note a delay of the event loop."""
        self.lag_ns = max(self.lag_ns, lag_ns)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return monotonic() - self._began

    def may_go_on(self) -> bool:
        """Tell whether another call may be made, looking at stop, budget and limits."""
        if self.halt is not None:
            return False
        if self.stop.is_set:
            self.end(Halt.INTERRUPTED, self.stop.reason)
            return False
        budget = self.plan.budget
        for spent, limit, what in (
            (self.calls, budget.calls, "calls"),
            (self.tokens, budget.tokens, "tokens"),
            (self.cost, budget.cost, "cost"),
        ):
            if limit is not None and spent >= limit:
                self.end(Halt.BUDGET, f"{spent:g} of {limit:g} {what} are spent")
                return False
        if budget.seconds is not None and self.elapsed_s >= budget.seconds:
            self.end(Halt.TIME, f"{budget.seconds:g} seconds are over")
        return self.halt is None

    def end(self, halt: Halt, reason: str) -> None:
        """Note that the run must end; the first reason stays."""
        if self.halt is None:
            self.halt, self.reason = halt, reason

    def room(self, wanted: int) -> int:
        """Return how many of some calls the budget still allows."""
        if not self.may_go_on():
            return 0
        limit = self.plan.budget.calls
        return wanted if limit is None else min(wanted, limit - self.calls)

    def took_decision(
        self, item: PendingSample, decision: Decision, *, latency_ns: int | None, flags: int = 0
    ) -> int:
        """Store and count one decision of a defense."""
        desk = item.desk
        code = desk.lane.add_decision(item.position, decision, latency_ns=latency_ns, flags=flags)
        self.took(desk, code=code, is_attack=item.is_attack, evidence=decision.evidence)
        if code >= _MALFORMED:
            self.met_failure(desk, decision, code=code)
        if self._rule is not None:
            self._rule.observe(desk.name, item.position, code)
            self._ask_rule(self._rule, desk)
        return code

    def took_all(
        self,
        desk: Recorder,
        chunk: Chunk,
        *,
        decisions: list[Decision],
        latencies: list[int],
        flags: int,
    ) -> None:
        """Store and count the decisions of a defense that answers at once."""
        add, counts, rule = desk.lane.add_decision, desk.tally.counts, self._rule
        for position, is_attack, decision, latency in zip(
            chunk.positions, chunk.attacks, decisions, latencies, strict=True
        ):
            code = add(position, decision, latency_ns=latency, flags=flags)
            counts[code + OUTCOMES * is_attack] += 1
            if decision.evidence is not None:
                self.spend(decision.evidence)
            if code >= _MALFORMED:
                self.met_failure(desk, decision, code=code)
            if rule is not None:
                rule.observe(desk.name, position, code)
            flags = 0
        self.calls += len(decisions)
        self.added += len(decisions)
        if rule is not None:
            self._ask_rule(rule, desk)

    def took(
        self, desk: Recorder, *, code: int, is_attack: bool, evidence: Evidence | None
    ) -> None:
        """Count one answer of any part."""
        desk.tally.counts[code + OUTCOMES * is_attack] += 1
        self.added += 1
        if evidence is not None:
            self.spend(evidence)

    def spend(self, evidence: Evidence) -> None:
        """Count what a call consumed beyond itself."""
        try:
            if len(evidence.attempts) > 1:
                self.calls += len(evidence.attempts) - 1
            usage = evidence.usage
            if usage is not None and not evidence.from_cache:
                self.tokens += (usage.prompt_tokens or 0) + (usage.completion_tokens or 0)
                self.cost += usage.cost or 0.0
        except (TypeError, AttributeError):
            return  # a part that says it in other types than agreed: stored as an error of it

    def met_error(self) -> None:
        """Count one failed call against the limit."""
        self.errors += 1
        limit = self.plan.max_errors
        if limit is not None and self.errors > limit:
            self.end(Halt.ERRORS, f"{self.errors} calls failed, {limit} are allowed")

    def met_failure(self, desk: Recorder, decision: Decision, *, code: int) -> None:
        """Count a decision that is none, and follow the policy for it."""
        if decision.error_kind is ErrorKind.SKIPPED:
            return
        policy, what = self.plan.on_malformed, "gave a malformed answer"
        if code == _ERROR:
            self.met_error()
            policy, what = self.plan.on_error, "failed"
        if policy is Policy.STOP:
            self.end(Halt.POLICY, f"{desk.name} {what}, and the policy is to stop")

    def store(self, *, count: int = _FLUSH_EVERY, is_forced: bool = False) -> None:
        """Commit what is due."""
        if is_forced:
            self.writer.flush()
        else:
            self.writer.flush_if_due(perf_counter_ns(), count=count)

    def _ask_rule(self, rule: StopRule, desk: Recorder) -> None:
        if self.is_done(desk) and self._ended and (reason := rule.reason()):
            self.end(Halt.EARLY, reason)
