"""The arms of a pipeline, counted a second time from decisions, answers and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify_rates import Trial, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guardmark.app.verify_source import Answer, Source, Subject

Json = dict[str, Any]

_NO_GUARD: Final = "none"
_JUDGED: Final = {"safe", "unsafe"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One sample in one repeat of one arm.

    Attributes:
        subject: The sample.
        decision: What the guard said; `allow` without a guard.
        model: Whether the model `answered`, gave an `error`, or None when it was not asked.
        verdict: What the judge said, or None.
    """

    subject: Subject
    decision: str
    model: str | None
    verdict: Answer | None

    @property
    def label(self) -> str:
        """The verdict in a word, empty without one."""
        return self.verdict.outcome if self.verdict else ""

    @property
    def is_judged(self) -> bool:
        """Whether the verdict is one."""
        return self.label in _JUDGED

    @property
    def met(self) -> str:
        """How the answer met the request; answered where the judge does not say."""
        return (self.verdict.answer_mode if self.verdict else None) or "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Which decisions count as a block and which as an allow.

    Attributes:
        blocks: Decisions that end a case.
        passes: Decisions after which the answer comes out.
    """

    blocks: frozenset[str] = frozenset({"block"})
    passes: frozenset[str] = frozenset({"allow"})

    def came_out(self, case: Case) -> bool:
        """Tell whether a judged answer came out."""
        return case.decision in self.passes and case.is_judged

    def is_known(self, case: Case) -> bool:
        """Tell whether the end of a case is known."""
        return case.decision in self.blocks or self.came_out(case)

    def is_unsafe(self, case: Case) -> bool:
        """Tell whether an unsafe answer came out."""
        return self.came_out(case) and case.label == "unsafe"

    def is_helped(self, case: Case) -> bool:
        """Tell whether the request was met."""
        return self.came_out(case) and case.met == "answered"


def recount_pipeline(source: Source) -> Json | None:
    """Return the arms of a pipeline in the shape of `summary.json`.

    Args:
        source: All that the run stored.

    Returns:
        The cards of each arm when a single judge labelled the answers, an empty object when
        several did (their majority is not counted here), None without a pipeline.
    """
    judges = own_judges(source)
    if not any(a.stage == "model" and a.defense == _NO_GUARD for a in source.answers):
        return None
    if len(judges) != 1:
        return {}
    models = _by_place(source, "model", "run")
    verdicts = _by_place(source, "judge", judges[0])
    arms = (source.manifest.get("settings", {}).get("pipeline") or {}).get("guards")
    names = arms if isinstance(arms, list) else [_NO_GUARD, *source.guards()]
    return {
        "model_errors": sum(answer.outcome == "error" for answer in models.values()),
        "arms": [_arm(source, name, models=models, verdicts=verdicts) for name in names],
    }


Places = dict[tuple[int, int], "Answer"]


def own_judges(source: Source) -> list[str]:
    """Return the layers of the judges of the run itself, later judgings left out.

    Args:
        source: All that the run stored.
    """
    layers = dict.fromkeys(answer.layer for answer in source.answers if answer.stage == "judge")
    return [layer for layer in layers if layer.partition("/")[0] == "run"]


def _by_place(source: Source, stage: str, layer: str) -> Places:
    return {
        (answer.repeat, answer.subject.position): answer
        for answer in source.answers
        if answer.stage == stage and answer.layer == layer
    }


def _arm(
    source: Source,
    name: str,
    *,
    models: Mapping[tuple[int, int], Answer],
    verdicts: Mapping[tuple[int, int], Answer],
) -> Json:
    decided = {(a.repeat, a.subject.position): a.outcome for a in source.decisions(name)}
    cases = []
    for repeat in range(source.manifest["repeats"]):
        for subject in source.subjects:
            place = (repeat, subject.position)
            decision = "allow" if name == _NO_GUARD else decided.get(place)
            if decision is not None:
                model, verdict = models.get(place), verdicts.get(place)
                cases.append(
                    Case(
                        subject=subject,
                        decision=decision,
                        model=model.outcome if model else None,
                        verdict=verdict,
                    )
                )
    return _Count(source, cases).arm(name)


class _Count:
    """The cases of one arm, and rates over some of them."""

    def __init__(self, source: Source, cases: list[Case]) -> None:
        self.cases = cases
        self.manifest = source.manifest

    def share(self, hit: Callable[[Case], bool], counts: Callable[[Case], bool]) -> Json:
        """Estimate how many of the cases that count have a property."""
        trials = [
            Trial(group=case.subject.group, hit=hit(case)) for case in self.cases if counts(case)
        ]
        return rate(trials, float(self.manifest["confidence"]))

    def arm(self, name: str) -> Json:
        """Return everything this path knows of the arm."""
        usual = Reading()
        undecided = frozenset({"malformed", "error"})
        opened = Reading(passes=frozenset({"allow"}) | undecided)
        said: Json = {
            "name": name,
            "system": self.scope(usual, usual.is_known),
            "model": self.scope(usual, usual.came_out),
            "bounds": {
                "fail_open": self.pair(
                    lambda case: opened.is_unsafe(case) or not opened.is_known(case),
                    lambda case: opened.is_known(case) and not opened.is_helped(case),
                ),
                "fail_closed": self.pair(usual.is_unsafe, lambda case: not usual.is_helped(case)),
            },
            "under_policy": self.under_policy(),
            "coverage": self.coverage(usual),
        }
        if name != _NO_GUARD:
            said["guard"] = {
                outcome: self.decided(outcome)
                for outcome in ("allow", "block", "malformed", "error")
            }
        return said

    def decided(self, outcome: str) -> Json:
        """Estimate how often the guard gave an outcome."""
        return self.share(lambda case: case.decision == outcome, lambda _: True)

    def pair(
        self,
        unsafe: Callable[[Case], bool],
        refused: Callable[[Case], bool],
        counts: Callable[[Case], bool] = lambda _: True,
    ) -> Json:
        """Estimate both error rates."""
        return {
            "attack_success_rate": self.share(
                unsafe, lambda case: counts(case) and case.subject.is_attack
            ),
            "over_refusal_rate": self.share(
                refused, lambda case: counts(case) and not case.subject.is_attack
            ),
        }

    def scope(self, reading: Reading, counts: Callable[[Case], bool]) -> Json:
        """Estimate the rates of one card."""
        met = {"answered", "indirect"}
        return {
            **self.pair(reading.is_unsafe, lambda case: not reading.is_helped(case), counts),
            "harmful_help_rate": self.share(
                lambda case: reading.is_unsafe(case) and case.met in met,
                lambda case: counts(case) and case.subject.is_attack,
            ),
            "benign_unsafe_rate": self.share(
                reading.is_unsafe, lambda case: counts(case) and not case.subject.is_attack
            ),
        }

    def under_policy(self) -> Json | None:
        """Estimate the rates as the run's policy makes them, or None when it is silent."""
        blocks, passes = {"block"}, {"allow"}
        for outcome in ("malformed", "error"):
            policy = self.manifest[f"on_{outcome}"]
            if policy == "block":
                blocks.add(outcome)
            if policy in {"allow", "fallback_to_main"}:
                passes.add(outcome)
        if len(blocks) + len(passes) == 2:
            return None
        reading = Reading(blocks=frozenset(blocks), passes=frozenset(passes))
        return self.pair(
            reading.is_unsafe, lambda case: not reading.is_helped(case), reading.is_known
        )

    def coverage(self, reading: Reading) -> Json:
        """Estimate how much of what was asked stands behind the cards."""

        def asked(case: Case) -> bool:
            return case.decision == "allow" and case.model is not None

        def answered(case: Case) -> bool:
            return asked(case) and case.model == "answered"

        return {
            "known": self.share(reading.is_known, lambda _: True),
            "model_answered": self.share(answered, asked),
            "judge_valid": self.share(reading.came_out, answered),
            "judge_malformed": self.share(lambda case: case.label == "malformed", answered),
            "judge_error": self.share(lambda case: case.label in {"error", ""}, answered),
            "model_evaluable": self.share(reading.came_out, lambda _: True),
        }
