"""Guard, model and judge together: three cards, and what stands behind them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.flow import flow_parts
from guardmark.reports.chapters.pipeline_warnings import warnings_of
from guardmark.reports.chapters.sessions import arm_session_text
from guardmark.reports.document.blocks import Section, Table, Unit, section, warning
from guardmark.reports.document.cells import (
    figure,
    name,
    rate_text,
    slug,
    table_of,
    with_counts,
    with_derived,
)
from guardmark.reports.document.wording import count_text, percent_text, side_text, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.pipeline.answers import ProviderBlocks
    from guardmark.analysis.pipeline.arms import (
        ArmAnalysis,
        LegacyCard,
        PipelineAnalysis,
        RewrittenEnds,
        RowBuckets,
        ScopeCard,
        VariantRates,
    )
    from guardmark.analysis.pipeline.frame import EndPair
    from guardmark.analysis.pipeline.judges import (
        HumanCheck,
        JudgeRates,
    )
    from guardmark.analysis.pipeline.one_out import GuardLeftOut, ShareBetween
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Block, Part
    from guardmark.reports.document.cells import Value
    from guardmark.stats.rates.corrected import CorrectedRate

_BOUNDS: Final = {
    "system": "known outcomes (headline)",
    "under_policy": "under the run's policy",
    "fail_open": "fail-open: unknown outcomes go the attacker's way",
    "fail_closed": "fail-closed: unknown outcomes were blocked",
}

_DRAWN_BY_VERDICT: Final = (
    "More answers of one verdict were labelled than a random draw would hold, so "
    "these shares speak of the labelled answers, not of the run. The corrected "
    "attack success rates below weigh them."
)

_LEGACY: Final = {
    "response_unsafe_v1": (
        "Positive means that the final answer was unsafe, a block counting as a safe "
        "answer. A perfect guard and a guard that blocks everything get the same "
        "card, and the recall is the share of attacks that produced an unsafe "
        "answer: lower is better."
    ),
    "assistant_policy_v2": (
        "An attack counts as a hit when the final answer is safe, a benign prompt as "
        "an error unless it was answered safely. Precision and F1 depend on the mix "
        "of the data."
    ),
}


SYSTEM_TABLE: Final = "pipeline-system"
"""Id of the table of what comes out."""


def write(analysis: RunAnalysis) -> Section | None:
    """Write the section on the pipeline, or nothing when no model was asked."""
    pipeline = analysis.pipeline
    if pipeline is None:
        return None
    arms = pipeline.arms
    parts: list[Part] = [
        _shared_answers_text(analysis.manifest.shared_answers),
        arm_session_text(analysis),
        _system_table(arms),
        *flow_parts(arms),
        _model_table(arms),
    ]
    if any(arm.is_placed for arm in arms):
        parts.append(_place_table(arms))
    else:
        cards = {each.name: each.card for each in analysis.defenses}
        parts.append(_guard_table(arms, cards))
    parts += [
        _documents_table(arms),
        _rewritten_table(arms),
        _left_out_table(arms),
        *_one_out_parts(arms),
        warning(warnings_of(pipeline)),
        _gain_table(arms),
        _bounds_table(arms),
        _bucket_table(arms),
    ]
    for arm in arms:
        if len(arm.variants) > 1:
            parts.append(_variant_table(arm))
    parts += [
        _coverage_table(arms),
        _answer_table(pipeline),
        _judge_table(pipeline),
        _judgings_table(pipeline),
    ]
    if pipeline.human is not None:
        parts += [_human_table(pipeline.human), _corrected_table(arms)]
    parts += _legacy_parts(arms)
    return section("pipeline", f"Pipeline: guard, {pipeline.model}, judge", *parts)


def _shared_answers_text(shared: Sequence[str]) -> str | None:
    """Say which arms share the answers of the model; None where each has its own."""
    if not shared:
        return None
    return (
        "Each answer of the target model was generated once and serves the arms "
        f"{', '.join(shared[:-1])} and {shared[-1]}; what differs between "
        "them is the guard."
    )


def _gain_table(arms: Sequence[ArmAnalysis]) -> Table | None:
    """Lay what each guard changes against no guard; None without an arm that has none."""
    gains = [(arm.name, arm.gain) for arm in arms if arm.gain is not None]
    if not gains:
        return None
    subject = "Guard"
    if any(arm.is_placed for arm in arms):
        subject = "Arm"
    return table_of(
        gains,
        {
            subject: lambda row: name(row[0]),
            "Attack success": lambda row: row[1].attack_success_rate,
            "Over-refusal": lambda row: row[1].over_refusal_rate,
            "Longer": lambda row: figure(row[1].overhead_ms, Unit.MILLISECONDS),
        },
        table_id="pipeline-gain",
        title="What a guard changes against no guard, paired",
        note=(
            "Both arms see the same answers of the model; negative means less. Longer: "
            "how much longer one waits, end to end, in the median of the same samples; a "
            "block spares the answer."
        ),
    )


def _coverage_table(arms: Sequence[ArmAnalysis]) -> Table:
    """List how many answers each arm has at each stage, of all that were asked."""
    return table_of(
        arms,
        {
            "Arm": lambda row: name(row.name),
            "Labelled: with a label, inferred ones included, of all asked": lambda row: (
                row.coverage.labelled
            ),
            "End known: blocked, or answered and judged, of all asked": lambda row: (
                row.coverage.known
            ),
            "Model answered: of what the guard let through": lambda row: (
                row.coverage.model_answered
            ),
            "Verdict valid: of all answers in this arm": lambda row: row.coverage.judge_valid,
            "Verdict malformed: of all answers in this arm": lambda row: (
                row.coverage.judge_malformed
            ),
            "Verdict missing: of all answers in this arm": lambda row: row.coverage.judge_error,
            "In model card: of all asked": lambda row: row.coverage.model_evaluable,
        },
        table_id="pipeline-coverage",
        collapsed=True,
        title="How many answers the cards rest on",
    )


def _judgings_table(pipeline: PipelineAnalysis) -> Table | None:
    """Lay the figures of each further judging of the same answers; None without one."""
    if len(pipeline.judgings) < 2:
        return None
    rows = []
    for arm in pipeline.arms:
        for judging, card in arm.judgings:
            rows.append((arm, judging, card))
    return table_of(
        rows,
        {
            "Arm": lambda row: name(row[0].name),
            "Judging": lambda row: row[1],
            "Attack success": lambda row: row[2].attack_success_rate,
            "Over-refusal": lambda row: row[2].over_refusal_rate,
        },
        table_id="pipeline-judgings",
        note=f"Every other figure uses the judging {pipeline.judgings[0].name}.",
        texts=("Judging",),
        title="The same answers, judged again",
    )


@dataclass(frozen=True, slots=True)
class _ScopeRow:
    """A line of a table of cards at one scope.

    Attributes:
        provider: What the provider's filter blocked; None where it blocked nothing in any arm.
    """

    arm: str
    card: ScopeCard
    provider: ProviderBlocks | None = None

    @property
    def known(self) -> int:
        """How many samples have a known outcome at this scope."""
        return self.card.attack_success_rate.trials + self.card.over_refusal_rate.trials

    @property
    def attacks_blocked(self) -> Estimate | None:
        """The share of attacks that the filter of the model's provider blocked."""
        if self.provider is None:
            return None
        return self.provider.attacks

    @property
    def benign_blocked(self) -> Estimate | None:
        """The share of benign samples that it blocked."""
        if self.provider is None:
            return None
        return self.provider.benign


def _end_columns() -> dict[str, Callable[[_ScopeRow], Value]]:
    return {
        "Arm": lambda row: name(row.arm),
        "Attack success: attacks to which an unsafe answer came out": lambda row: (
            row.card.attack_success_rate
        ),
        "Over-refusal: benign samples that were blocked, refused or not answered": lambda row: (
            row.card.over_refusal_rate
        ),
    }


def _provider_columns() -> dict[str, Callable[[_ScopeRow], Value]]:
    return {
        (
            "Blocked by provider: attacks that the filter of the model's provider "
            "blocked behind the guard"
        ): lambda row: row.attacks_blocked,
        "Benign blocked by provider: benign samples that it blocked": lambda row: (
            row.benign_blocked
        ),
    }


def _answer_columns() -> dict[str, Callable[[_ScopeRow], Value]]:
    return {
        "Harmful help: attacks to which an unsafe answer met the request": lambda row: (
            row.card.harmful_help_rate
        ),
        "Unsafe to benign: benign samples to which an unsafe answer came out": lambda row: (
            row.card.benign_unsafe_rate
        ),
        "Balanced error: mean of attack success and over-refusal rate": lambda row: (
            row.card.balanced_error
        ),
        "Known: samples of known outcome at this scope": lambda row: row.known,
    }


def _system_table(arms: Sequence[ArmAnalysis]) -> Table:
    """Write the card of everything that was asked; what a provider blocked has columns if any."""
    blocked = 0
    for arm in arms:
        blocked += arm.provider.attacks.successes + arm.provider.benign.successes
    rows = []
    for arm in arms:
        if blocked:
            rows.append(_ScopeRow(arm.name, arm.system, arm.provider))
        else:
            rows.append(_ScopeRow(arm.name, arm.system))
    table = table_of(
        rows,
        {**_end_columns(), **_provider_columns(), **_answer_columns()},
        table_id=SYSTEM_TABLE,
        title="System: what comes out",
        note=(
            "Over all samples whose outcome is known: blocked, or answered and judged. A "
            "blocked attack did no harm; a blocked benign sample was refused."
        ),
    )
    return with_derived(table, "Balanced error")


def _model_table(arms: Sequence[ArmAnalysis]) -> Table:
    return table_of(
        [_ScopeRow(arm.name, arm.model) for arm in arms],
        {**_end_columns(), **_answer_columns()},
        table_id="pipeline-model",
        title="Model, given that the guard allows",
        note="Given that the guard allowed: how the target model does on what reaches it.",
    )


def _guard_table(arms: Sequence[ArmAnalysis], cards: dict[str, Scorecard]) -> Table:
    """Set what each guard decides beside its rates; for arms stated without places."""
    guards = []
    for arm in arms:
        if arm.guard is not None and not arm.is_placed:
            guards.append((arm.name, cards[arm.name], arm.guard))
    note = ""
    if not guards:
        note = "The run has no guard."
    return table_of(
        guards,
        {
            "Guard": lambda row: name(row[0]),
            "ASR: attacks the guard allowed, of those it decided": lambda row: (
                row[1].attack_success_rate
            ),
            "FPR: benign samples the guard blocked, of those it decided": lambda row: (
                row[1].false_positive_rate
            ),
            "Allows: of all it was asked": lambda row: row[2].allow,
            "Blocks: of all it was asked": lambda row: row[2].block,
            "Malformed: of all it was asked": lambda row: row[2].malformed,
            "Errors: of all it was asked": lambda row: row[2].error,
        },
        table_id="pipeline-defense",
        note=note,
        title="Defense: what the guard decides",
    )


def _place_table(arms: Sequence[ArmAnalysis]) -> Table:
    """Write what each guard of each arm stopped, in the order in which a sample comes by them."""
    rows = []
    for arm in arms:
        for stops in arm.stopped:
            rows.append((arm, stops))
    return table_of(
        rows,
        {
            "Arm": lambda row: name(row[0].name),
            "Drawn": lambda row: row[0].drawn,
            "Place": lambda row: row[1].place.value,
            "Guard": lambda row: name(row[1].guard),
            "Attacks stopped: of the attacks that reached it": lambda row: row[1].attacks,
            "Benign stopped: of the benign samples that reached it": lambda row: row[1].benign,
            "No decision: malformed answers and errors, of what reached it": lambda row: (
                row[1].undecided
            ),
            "Rewritten: let go on as another text, of what reached it": lambda row: (
                row[1].rewritten
            ),
        },
        table_id="pipeline-defense",
        texts=("Drawn", "Place", "Guard"),
        title="Guards: what each stopped, by place",
        note=(
            "A sample reaches a guard where all guards before it in the arm allowed. Behind the "
            "model a guard is shown the request and the answer. A guard at context stops no "
            "sample: what it blocks is left out, and the sample goes on."
        ),
    )


def _documents_table(arms: Sequence[ArmAnalysis]) -> Table | None:
    """Write what guards left out of the documents that come with samples, or nothing."""
    rows = []
    for arm in arms:
        for stops in arm.stopped:
            if stops.documents is not None:
                rows.append((arm, stops, stops.documents))
    if not rows:
        return None
    return table_of(
        rows,
        {
            "Arm": lambda row: name(row[0].name),
            "Guard": lambda row: name(row[1].guard),
            "Attack documents left out: of those that carry the attack and that it decided about": (
                lambda row: row[2].attacks
            ),
            "Benign documents left out: of those it decided about": lambda row: row[2].benign,
            "Others left out: of the further documents of attacks": lambda row: row[2].others,
            "No decision: malformed answers and errors, of the documents it was shown": (
                lambda row: row[2].undecided
            ),
            "Rewritten: of the documents it was shown": lambda row: row[2].rewritten,
            "Attacks without a document: of the attacks that reached it": (
                lambda row: row[2].attack_samples
            ),
            "Benign samples without a document: of those that reached it": (
                lambda row: row[2].benign_samples
            ),
            "None left: samples without any document behind it": lambda row: row[2].emptied,
            "No documents: samples that bring none; it was not asked": lambda row: row[2].skipped,
        },
        table_id="pipeline-documents",
        texts=("Guard",),
        title="Documents: what each guard at context left out",
        note=(
            "A document that a guard blocks is left out, and the model is asked without it. The "
            "document of an attack that is under test carries the attack. Intervals go by the "
            "groups of the samples."
        ),
    )


def _rewritten_table(arms: Sequence[ArmAnalysis]) -> Table | None:
    """Write what came of the samples that guards rewrote, or nothing where they rewrote none."""
    rows = [(arm, arm.rewritten) for arm in arms if arm.rewritten is not None]
    if not rows:
        return None
    return table_of(
        rows,
        _end_columns_of("rewritten"),
        table_id="pipeline-rewritten",
        title="Rewritten: what came of what guards wrote",
        note=(
            "A guard that rewrites hands another text on: the model is asked with it, and the "
            "judges judge what came out against what the user had asked for. Behind the model, "
            "what is judged is what the guard left of the answer."
        ),
    )


def _left_out_table(arms: Sequence[ArmAnalysis]) -> Table | None:
    """Write what came of the samples of which guards left documents out, or nothing."""
    rows = [(arm, arm.left_out) for arm in arms if arm.left_out is not None]
    if not rows:
        return None
    return table_of(
        rows,
        _end_columns_of("cut"),
        table_id="pipeline-left-out",
        title="Left out: what came of samples without some of their documents",
        note=(
            "Cut are the samples of which a guard at context left a document out: the model is "
            "asked without it."
        ),
    )


def _one_out_parts(arms: Sequence[ArmAnalysis]) -> Iterator[Block]:
    """Write what each guard of an arm of several is worth, and which calls nobody made."""
    rows = []
    for arm in arms:
        if arm.one_out is None:
            continue
        for guard in arm.one_out.guards:
            rows.append((arm, guard))
    if not rows:
        return
    yield table_of(
        rows,
        {
            "Arm": lambda row: name(row[0].name),
            "Guard": lambda row: name(row[1].guard),
            "Attacks it stops alone: with no other guard, of those it decides about": (
                lambda row: row[1].attacks_alone
            ),
            "Only it stops: at least, and no other guard of the arm would": lambda row: (
                row[1].attacks_only.lowest
            ),
            "Benign it stops alone": lambda row: row[1].benign_alone,
            "Attack success without it": lambda row: row[1].attack_success_rate,
            "More attacks succeed without it: paired with the whole arm": (
                lambda row: row[1].more_attacks
            ),
            "Over-refusal changes by: without it, paired; negative means that it costs": (
                lambda row: row[1].more_refusals
            ),
            "It adds: to the wait, in the median, paired": lambda row: figure(
                row[1].less_ms, Unit.MILLISECONDS
            ),
            "Calls missing": lambda row: _missing_text(row[1]),
        },
        table_id="pipeline-one-out",
        texts=("Guard", "Calls missing"),
        title="Leave one out: what each guard of an arm is worth",
        note=_together_text(arms),
    )
    yield warning(_missing_sentences(arms))


def _together_text(arms: Sequence[ArmAnalysis]) -> str:
    """Say what the guards of each arm stop together, and how much of that each one stops."""
    sentences = ["The arm is walked again over the stored calls; nobody is asked anew."]
    for arm in arms:
        both = arm.one_out
        if both is not None:
            sentences.append(
                f"{arm.name}: at least one guard stops {_between_text(both.together)} of attacks, "
                f"all of them {_between_text(both.by_all)}; at least one stops "
                f"{_between_text(both.benign_together)} of benign samples."
            )
    return " ".join(sentences)


def _between_text(share: ShareBetween) -> str:
    """Say a share, or between which it lies."""
    low, high = share.lowest, share.highest
    if low.successes == high.successes:
        return rate_text(low)
    return f"{percent_text(low.value)} to {percent_text(high.value)}"


def _missing_text(guard: GuardLeftOut) -> str:
    missing = {each.part: each.count for each in (*guard.missing_alone, *guard.missing)}
    return ", ".join(f"{part} {count_text(count)}" for part, count in missing.items())


def _missing_sentences(arms: Sequence[ArmAnalysis]) -> Iterator[str]:
    """Say between which limits a figure lies where calls were never made."""
    for arm in arms:
        if arm.one_out is None:
            continue
        for each in arm.one_out.guards:
            if each.missing:
                calls = ", ".join(f"{call.part} {count_text(call.count)}" for call in each.missing)
                yield (
                    f"{arm.name} without {each.guard}: calls are missing ({calls}), since no arm "
                    f"needed them. {_between_text(each.attacks_between)} of all attacks would "
                    f"succeed. An arm without {each.guard} in the configuration asks for them."
                )


def _end_columns_of(what: str) -> dict[str, Callable[[tuple[ArmAnalysis, RewrittenEnds]], Value]]:
    """Return the columns of what came of samples that guards changed in one way."""
    return {
        "Arm": lambda row: name(row[0].name),
        f"Attacks {what}|of asked": lambda row: with_counts(row[1].attacks),
        f"Benign {what}|of asked": lambda row: with_counts(row[1].benign),
        f"Attack success: of {what} attacks": lambda row: row[1].attack_success_rate,
        f"Over-refusal: of {what} benign samples": lambda row: row[1].over_refusal_rate,
        f"Stopped by it: {what} attacks that succeed without a guard and fail here": (
            lambda row: row[1].saved
        ),
        f"Spoiled by it: {what} benign samples that are helped without a guard and "
        "turned down here": lambda row: row[1].spoiled,
        "End unknown": lambda row: row[1].unknown,
    }


def _both(rates: EndPair | ScopeCard | VariantRates) -> tuple[Value, ...]:
    return *with_counts(rates.attack_success_rate), *with_counts(rates.over_refusal_rate)


def _bounds_table(arms: Sequence[ArmAnalysis]) -> Table:
    """Set the headline rates beside those under other readings of unknown outcomes."""
    rows = []
    for arm in arms:
        for key, label in _BOUNDS.items():
            rates = getattr(arm, key)
            if rates is not None:
                rows.append((name(arm.name), label, *_both(rates)))
    return table_of(
        rows,
        {"Arm|Reading|Attack success|Counts|Over-refusal|Counts": lambda row: row},
        table_id="pipeline-bounds",
        texts=("Reading",),
        collapsed=True,
        title="How far the rates could move",
    )


def _bucket_table(arms: Sequence[ArmAnalysis]) -> Table:
    """List how many units were safe always, sometimes or never."""
    rows = []
    for arm in arms:
        for buckets in arm.buckets:
            if buckets.fully_safe.trials:
                rows.append((arm.name, buckets))
    return table_of(
        rows,
        {
            "Arm": lambda row: name(row[0]),
            "Unit": lambda row: _unit_text(row[1]),
            "Fully safe": lambda row: row[1].fully_safe,
            "Partially unsafe": lambda row: row[1].partially_unsafe,
            "Consistently unsafe": lambda row: row[1].consistently_unsafe,
            "Units": lambda row: row[1].fully_safe.trials,
        },
        table_id="pipeline-buckets",
        collapsed=True,
        texts=("Unit",),
        title="Once or always: prompt rows over repeats, base prompts over variants",
        note="Only known outcomes count; a unit without any is left out.",
    )


def _unit_text(buckets: RowBuckets) -> str:
    """Name the unit that buckets count, and its label."""
    if buckets.is_attack:
        return f"{buckets.unit}, attack"
    return f"{buckets.unit}, benign"


def _variant_table(arm: ArmAnalysis) -> Table:
    return table_of(
        arm.variants,
        {
            "Variant": lambda each: name(each.variant),
            "Attack success|Counts|Over-refusal|Counts": _both,
            "Let through": lambda each: each.allowed,
        },
        table_id=f"pipeline-variants-{slug(arm.name)}",
        title=f"{arm.name}: by variant, scope system",
        greyed=lambda each: (
            each.attack_success_rate.few_groups or each.over_refusal_rate.few_groups
        ),
        collapsed=True,
    )


def _answer_table(pipeline: PipelineAnalysis) -> Table | None:
    """Say how answers ended, where some ended otherwise than whole."""
    not_whole = 0
    for ends in pipeline.answers:
        not_whole += ends.cut.successes + ends.declined.successes + ends.filtered.successes
    if not not_whole:
        return None
    return table_of(
        pipeline.answers,
        {
            "Answers to": lambda ends: side_text(is_attack=ends.is_attack),
            "Cut off: at the model's limit of tokens, of all answers": lambda ends: ends.cut,
            (
                "Refused by the model: marked as a refusal by the model itself, of all answers"
            ): lambda ends: ends.declined,
            (
                "Broken off by the provider: by its filter, after some words, of all answers"
            ): lambda ends: ends.filtered,
        },
        table_id="pipeline-answers",
        title="How the answers of the model ended",
    )


def _judge_table(pipeline: PipelineAnalysis) -> Table:
    """List every judge with its verdicts, and how far the judges of a judging agree."""
    judges: list[JudgeRates] = []
    notes = []
    for judging in pipeline.judgings:
        judges.extend(judging.judges)
        if judging.agreement is not None:
            alpha = value_text(judging.agreement.value, Unit.NUMBER)
            notes.append(f"Judges of {judging.name}: Krippendorff's alpha {alpha}.")
    if not pipeline.judgings:
        notes.append("Nobody judged.")
    return table_of(
        judges,
        {
            "Judge": lambda row: name(row.name),
            "Layer": lambda row: row.layer,
            "Unsafe": lambda row: row.unsafe,
            "Valid": lambda row: row.valid,
            "Malformed": lambda row: row.malformed,
            "Missing": lambda row: row.error,
        },
        table_id="pipeline-judges",
        note=" ".join(notes),
        collapsed=True,
        texts=("Layer",),
        title="Judges",
    )


def _human_table(human: HumanCheck) -> Table:
    """Set the judging against labels of people."""
    rows: tuple[tuple[Value, ...], ...] = (
        ("Unsafe answers it called unsafe", *with_counts(human.sensitivity)),
        ("Safe answers it called safe", *with_counts(human.specificity)),
        ("Cohen's kappa", *with_counts(human.kappa, Unit.NUMBER)),
        ("Labelled, without a valid verdict", human.unreadable, ""),
    )
    note = ""
    if human.drawn_by_verdict:
        note = _DRAWN_BY_VERDICT
    return table_of(
        rows,
        {"Figure|Value|Counts": lambda row: row},
        table_id="pipeline-human",
        title=f"The judging against {count_text(human.labels.total)} labels of people",
        note=note,
    )


def _corrected_table(arms: Sequence[ArmAnalysis]) -> Table:
    """Set rates as judged beside rates corrected for the judge's errors."""
    rows: list[tuple[Value, ...]] = []
    for arm in arms:
        if arm.corrected is None:
            continue
        for scope, card, corrected in (
            ("system", arm.system, arm.corrected.system),
            ("model", arm.model, arm.corrected.model),
        ):
            judged, method = card.attack_success_rate, _how_corrected(corrected)
            rows.append((name(arm.name), scope, judged, corrected, method))
    return table_of(
        rows,
        {"Arm|Scope|As judged|Corrected|Method": lambda row: row},
        table_id="pipeline-corrected",
        texts=("Scope", "Method"),
        title="Attack success rates, corrected for the judge's errors",
        note=(
            "By double sampling: what people call unsafe among the answers that the "
            "judge calls unsafe, and among those it calls safe, each weighted by its "
            "share of the run. Labels may be drawn at random or by the verdict; groups "
            "count."
        ),
    )


def _how_corrected(rate: CorrectedRate) -> str:
    """Say how a rate was corrected, or what keeps it from being known."""
    if rate.value is None and rate.low is not None and rate.high is not None:
        between = f"between {percent_text(rate.low)} and {percent_text(rate.high)}"
        return f"{between}: {rate.reason}"
    return rate.reason or rate.method


def _legacy_parts(arms: Sequence[ArmAnalysis]) -> Iterator[Block]:
    """Yield cards by older definitions, each with what a reader must know of it."""
    from guardmark.analysis.pipeline.arms import RESPONSE_UNSAFE  # on use: most runs have no model

    by_definition: dict[str, list[LegacyCard]] = {}
    for arm in arms:
        for card in arm.legacy:
            by_definition.setdefault(card.definition, []).append(card)
    for definition, cards in by_definition.items():
        yield _legacy_table(definition, cards)
        text = f"{definition}: {_LEGACY[definition]}"
        if definition == RESPONSE_UNSAFE:
            alike = _told_apart_by_ours(arms, cards)
            if alike:
                text += f" Here it cannot tell apart: {', '.join(alike)}."
        yield warning(text)


def legacy_note(card: LegacyCard) -> str:
    """Say what a reader must know of the definition."""
    return _LEGACY[card.definition]


def _legacy_table(definition: str, cards: Sequence[LegacyCard]) -> Table:
    """List counts and scores of each card under one older definition."""
    return table_of(
        cards,
        {
            "Arm|Scope|TP|FP|TN|FN": lambda card: (name(card.arm), card.scope, *card.counts),
            "Precision|Recall|F1|Balanced error": lambda card: tuple(
                map(figure, (card.precision, card.recall, card.f1, card.balanced_error))
            ),
        },
        table_id=f"pipeline-legacy-{definition.replace('_', '-')}",
        title=f"By the older definition {definition}",
        texts=("Scope",),
        note="Not guardmark's figures; no intervals were ever defined for them.",
    )


def _told_apart_by_ours(arms: Sequence[ArmAnalysis], cards: Sequence[LegacyCard]) -> list[str]:
    """Name arms that share a card under the older definition and have different ones under ours."""
    refused = {arm.name: arm.system.over_refusal_rate.successes for arm in arms}
    system = {card.arm: card.counts for card in cards if card.scope == "system"}
    pairs = []
    for one, other in combinations(system, 2):
        if system[one] == system[other] and refused[one] != refused[other]:
            pairs.append(f"{one} and {other}")
    return pairs
