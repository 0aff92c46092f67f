"""How far a run is, and whether it may go on: its counts, what it spent, the wish to stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.core.asking_order import MOST_IN_GROUPS, order_samples
from guardmark.core.budget import Budget
from guardmark.core.manifest import Policy
from guardmark.core.outcome import ErrorKind
from guardmark.defenses.answers import READ_AS_RISK, ConfidenceRange
from guardmark.engine.asking import Asker
from guardmark.engine.plan import Spending
from guardmark.inference.runtime import HALVED
from guardmark.store.schema import OUTCOME_CODE, OUTCOME_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.core.outcome import Decision, Evidence, Outcome
    from guardmark.core.protocols import StopRule
    from guardmark.core.record import Stage
    from guardmark.engine.plan import Plan
    from guardmark.engine.supervision import StopSignal
    from guardmark.store.records import RecordWriter


_ERROR: Final = OUTCOME_CODE["error"]
_FLUSH_EVERY: Final = 250  # a commit of this size stalls calls in flight for about a millisecond


OUTCOMES: Final = len(OUTCOME_NAMES)
"""Outcomes counted for each label: of benign samples first, of attacks, of unlabelled samples."""
UNLABELLED: Final = 2 * OUTCOMES
"""Where the counts of unlabelled samples begin; those of attacks begin at `OUTCOMES`."""


@dataclass(slots=True, eq=False)
class ProgressCounts:
    """Counts of one part by label and outcome.

    Attributes:
        name: Which part.
        stage: What it does in a run.
        planned: Records that it will have, as far as known.
        counts: Records that it has: by outcome, of benign samples, then attacks, then unlabelled
            ones.
    """

    name: str
    stage: Stage
    planned: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (3 * OUTCOMES))

    @property
    def done(self) -> int:
        """Number of records."""
        return sum(self.counts)

    def failed(self, outcome: Outcome) -> int:
        """Number of answers that are none, of one kind."""
        return sum(self.counts[OUTCOME_CODE[outcome] :: OUTCOMES])

    def blocked(self, *, is_attack: bool) -> tuple[int, int]:
        """Return how many attacks, or benign samples, were blocked, and of how many answered."""
        allowed, blocked = self.counts[OUTCOMES * is_attack :][:2]
        return blocked, allowed + blocked


class Progress:
    """Counters of a run; written by the engine, read by anybody, also by another thread."""

    __slots__ = ("failed", "parts")

    def __init__(self) -> None:
        self.parts: list[ProgressCounts] = []
        self.failed: Callable[[], Mapping[str, int]] = dict  # requests, by status

    def of(self, name: str, stage: Stage) -> ProgressCounts:
        """Return the counts of a part, new ones if it has none."""
        for part in self.parts:
            if part.name == name and part.stage == stage:
                return part
        part = ProgressCounts(name, stage)
        self.parts.append(part)
        return part

    @property
    def planned(self) -> int:
        """Records the run will have, as far as known."""
        return sum(part.planned for part in self.parts)

    @property
    def done(self) -> int:
        """Records the run has, earlier runs of the same command included."""
        return sum(part.done for part in self.parts)


class Halt(StrEnum):
    """Why a run ends before its plan is done."""

    INTERRUPTED = "interrupted"
    BUDGET = "budget"
    TIME = "time"
    ERRORS = "errors"
    POLICY = "policy"
    CONFIDENCE = "confidence"
    EARLY = "early"


def _random_order(writer: RecordWriter) -> Sequence[int]:
    """Put the samples in the seeded random order in which they are asked about."""
    manifest, count = writer.manifest, writer.sample_count
    groups = writer.stored.groups() if count <= MOST_IN_GROUPS else ()
    return order_samples(groups, count, seed=0 if manifest is None else manifest.seed)


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
        self.spending = plan.spending or Spending()
        self.meter = self.spending.meter
        self.meter.limit(plan.budget)
        self.asker = Asker(
            self.spending, under_way=writer.under_way, cached=plan.cached, by_text=plan.by_text
        )
        self._earlier = self.meter.calls, self.meter.cost  # of what came before in this invocation
        self.tokens = self.added = 0
        self.dealt = 0  # calls that an executor was dealt and that nobody has counted yet
        self.lag_ns = self.errors = 0
        self.notes: list[str] = []  # what deserves a word when the run is over
        self._confidences: dict[str, ConfidenceRange] = {}
        self.progress = progress
        self.stop = stop
        self.rule = stop_rule
        if stop_rule is None:
            self.order = _random_order(writer)
        else:  # which speaks of labelled samples only
            self.order = [*stop_rule.order, *range(writer.labelled_count, writer.sample_count)]
        self._has_budget = plan.budget != Budget()
        self._ended: set[str] = set()
        self._began = monotonic()

    def is_done(self, part: ProgressCounts) -> bool:
        """Tell whether a rule says that a defense need not be asked any further."""
        if self.rule is None or not self.rule.is_done(part.name):
            return False
        if part.done < part.planned:
            self._ended.add(part.name)
        part.planned = part.done
        return True

    def note_early_end(self) -> None:
        """Note, when all work is done, that some defenses were not asked about everything."""
        if self._ended and self.rule is not None:
            names = ", ".join(sorted(self._ended))
            self.end(Halt.EARLY, self.rule.reason() or f"enough was seen of {names}")

    def tick(self, lag_ns: int) -> bool:
        """Commit what is due, and tell whether what is under way is waited for.

        Answers that arrived are committed in time even when no further ones come. A run that
        must end drops what is in flight, except when only a number of calls, tokens or money
        ran out: those calls were paid for, so they are finished and stored.
        """
        self.lag_ns = max(self.lag_ns, lag_ns)
        self.store()
        return self.may_go_on() or self.halt is Halt.BUDGET

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
        if self._has_budget:
            self._look_at_budget()
        return self.halt is None

    @property
    def calls(self) -> int:
        """Calls that were made and requests that were sent."""
        return self.meter.calls - self._earlier[0]

    @property
    def cost(self) -> float:
        """What they cost, as far as it is known."""
        return self.meter.cost - self._earlier[1]

    def _look_at_budget(self) -> None:
        """End the run where a limit of its budget is reached."""
        budget = self.plan.budget
        reason = self.meter.used_up()
        if reason:
            self.end(Halt.BUDGET, reason)
        elif budget.tokens is not None and self.tokens >= budget.tokens:
            self.end(Halt.BUDGET, f"{self.tokens:g} of {budget.tokens:g} tokens are used up")
        if budget.seconds is not None and self.elapsed_s >= budget.seconds:
            self.end(Halt.TIME, f"{budget.seconds:g} seconds are up")

    def end(self, halt: Halt, reason: str) -> None:
        """Note that the run must end; the first reason stays."""
        if self.halt is None:
            self.halt, self.reason = halt, reason

    def room(self, wanted: int) -> int:
        """Return how many of some calls the budget still allows."""
        if not self.may_go_on():
            return 0
        return max(0, self.meter.room(wanted + self.dealt) - self.dealt)

    def affordable(self, costs: Sequence[float]) -> int:
        """Return how many calls at these costs, in their order, the money left pays for.

        Where it does not pay for one, the run ends.
        """
        count = self.meter.affordable(costs)
        if costs and not count:
            self.end(Halt.BUDGET, self.meter.refusal(costs[0]))
        return count

    def spend(self, evidence: Evidence, name: str = "", *, is_paid: bool = True) -> None:
        """Count the tokens of a call of a part; memory that ran out is told once.

        Where nobody has asked the meter for the call, its cost and its further calls count here.
        """
        try:
            if not is_paid and (evidence.usage is not None or len(evidence.attempts) > 1):
                self.pay(evidence)
            usage = evidence.usage
            if usage is not None and not evidence.from_cache:
                self.tokens += (usage.prompt_tokens or 0) + (usage.completion_tokens or 0)
            if name and HALVED in evidence.message:
                note = f"{name}: {HALVED}"
                if note not in self.notes:
                    self.notes.append(note)
        except (TypeError, AttributeError):
            return  # a part that says it in other types than agreed: stored as an error of it

    def pay(self, evidence: Evidence) -> None:
        """Count what an answer of a part in this process cost, and calls beyond its first."""
        usage = evidence.usage
        cost = 0.0 if usage is None or evidence.from_cache else usage.cost or 0.0
        self.meter.count(max(0, len(evidence.attempts) - 1), cost)

    def note_error(self) -> None:
        """Count one failed call against the limit."""
        self.errors += 1
        limit = self.plan.max_errors
        if limit is not None and self.errors > limit:
            self.end(Halt.ERRORS, f"{self.errors} calls failed, {limit} are allowed")

    def note_failure(self, name: str, decision: Decision, *, code: int) -> None:
        """Count a decision that is none, and follow the policy for it."""
        if decision.error_kind is ErrorKind.SKIPPED:
            return
        policy, what = self.plan.on_malformed, "gave a malformed answer"
        if code == _ERROR:
            self.note_error()
            policy, what = self.plan.on_error, "failed"
        if policy is Policy.STOP:
            self.end(Halt.POLICY, f"{name} {what}, and the policy is to stop")

    def note_confidence(self, name: str, decision: Decision) -> None:
        """Stop where confidences that nobody said are risks contradict the decisions as risks."""
        seen = self._confidences.get(name)
        if seen is None:
            seen = self._confidences[name] = ConfidenceRange()
            self.notes.append(f"{name}: {READ_AS_RISK}")
        seen.add(decision)
        if seen.is_contradicted:
            self.end(Halt.CONFIDENCE, f"{name}: {seen.sentence}")

    def store(self, *, count: int = _FLUSH_EVERY, is_forced: bool = False) -> None:
        """Commit what is due."""
        if is_forced:
            self.writer.flush()
        else:
            self.writer.flush_if_due(perf_counter_ns(), count=count)

    def ask_rule(self, part: ProgressCounts) -> None:
        """End the run when its rule says that enough was seen."""
        rule = self.rule
        if rule is None or not self.is_done(part) or not self._ended:
            return
        reason = rule.reason()
        if reason:
            self.end(Halt.EARLY, reason)
