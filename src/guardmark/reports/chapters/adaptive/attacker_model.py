"""What an attacker model brought through, how it answered, and its controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.operators import OperatorClass
from guardmark.reports.document.blocks import Bullets, Paragraph, Row, Table, TextCell, Tone, Unit
from guardmark.reports.document.cells import (
    columns,
    count,
    counts,
    figure,
    name,
    of_difference,
    of_estimate,
    rate_text,
    row,
    slug,
    words,
)
from guardmark.reports.document.wording import count_text, measure_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.adaptive.attacker import AttackerCard, CriticCard, RewordingCard
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.core.usage import UsageTotals
    from guardmark.reports.document.blocks import Block, Cell, FigureCell


_LABELS: Final = {
    "attacks": "Attacks that fell to a proved candidate, of those it was given",
    "unproved": "Attacks that came through unproved only (V4)",
    "refused": "Refusals, of its answers",
    "invalid": "Answers that could not be read, asked again included",
    "repeated": "Repeats, of its candidates",
    "lost": "Candidates that lost a piece that must be kept",
    "equivalent": "Same request by every vote, of the judged candidates",
    "undecided": "Votes that changed with the order, of the judged candidates",
    "passed": "Got through, of the candidates sent and answered",
}

_TWIN: Final = {
    "blocked": "Benign candidates blocked, of those sent and answered",
    "as_is": "The same samples blocked as they are",
    "attacks_blocked": "Candidates made from attacks blocked, of those sent and answered",
    "equivalent": "Same request by both votes, of the judged benign candidates",
    "refused": "Refusals, of its answers on benign texts",
    "invalid": "Answers on benign texts that could not be read",
}

_NOTE: Final = (
    "A refusal lowers the rate of the round without any merit of the defense. A candidate is sent "
    "only after it was judged the same request (by a model twice, in both orders; by embeddings "
    "when their cosine reaches tau), or when it holds the same letters; calls that failed and "
    "verdicts that cannot be read count in no rate."
)

_NOT_CALIBRATED: Final = "not calibrated"
"""What stands in the place of a calibration that never was."""

_MEANING: Final = {
    OperatorClass.HOLDS: "it holds: attacks are recognised in other words, and benign texts pass",
    OperatorClass.BLANKET: "a blanket block: what the model rewords is blocked, attack or not",
    OperatorClass.BLIND: "blind: what the model rewords passes, attack or not",
    OperatorClass.INVERTED: "inverted: reworded attacks pass, and benign texts are blocked",
    OperatorClass.UNKNOWN: "unknown: nothing to compare",
}
"""What each standing says of a defense, with what an attacker model rewords."""


def attacker_blocks(card: AdaptiveCard) -> list[Block]:
    """Tell of the attacker model, where there was one."""
    attacker = card.attacker
    if attacker is None:
        return []
    brought = brought_sentence(card.name, attacker)
    if not attacker.attacks.trials:
        return [Paragraph(text=brought)]
    cost = f"{card.name}: {cost_text(attacker)}"
    controls = (sentence for _, sentence in control_sentences(card))
    blocks: list[Block] = [
        _figures_table(card, attacker),
        Bullets(lines=(brought, cost, *controls)),
    ]
    if cautions := tuple(attacker_cautions(card)):
        blocks.append(Bullets(lines=cautions, tone=Tone.WARNING))
    if attacker.strategies:
        blocks.append(_strategies_table(card, attacker))
    if attacker.twin is not None and attacker.twin.samples:
        blocks.append(_twin_table(card.name, attacker.twin, has_judge=attacker.has_judge))
    blocks.append(_spending_table(card, attacker))
    return blocks


def _figures_table(card: AdaptiveCard, attacker: AttackerCard) -> Table:
    return Table(
        id=f"adaptive-attacker-{slug(card.name)}",
        title=f"{card.name}: the attacker model",
        columns=columns("Figure", "Rate", "Of"),
        rows=tuple(
            _row(label, of_estimate(getattr(attacker, key))) for key, label in _LABELS.items()
        ),
        note=_NOTE,
    )


def _row(label: str, measure: FigureCell) -> Row:
    return row(label, measure, counts(measure))


def _twin_table(defense: str, twin: RewordingCard, *, has_judge: bool) -> Table:
    proof = "the same judge of sameness" if has_judge else "nobody to judge sameness"
    unsure = "" if twin.is_clear else " (too few to be sure)"
    change, separation = of_difference(twin.change), of_difference(twin.separation)
    return Table(
        id=f"adaptive-attacker-twin-{slug(defense)}",
        title=f"{defense}: benign texts reworded by the attacker model",
        columns=columns("Figure", "Rate", "Of"),
        rows=(
            *(_row(label, of_estimate(getattr(twin, key))) for key, label in _TWIN.items()),
            _row("Benign reworded minus as they are, candidate by candidate", change),
            _row("J: attacks blocked minus benign blocked, both reworded", separation),
            row("Standing", f"{twin.standing.value}{unsure}", ""),
        ),
        note=f"{count_text(twin.samples)} benign samples, drawn with the seed, in one call each: "
        f"the same model and strategies, {proof}, the label untold. The evaluator pays.",
    )


def _strategies_table(card: AdaptiveCard, attacker: AttackerCard) -> Table:
    twins = attacker.twin is not None and bool(attacker.twin.strategies)
    return Table(
        id=f"adaptive-strategies-{slug(card.name)}",
        title=f"{card.name}: strategies of the attacker model",
        columns=columns(
            "Strategy",
            "Candidates",
            "Got through",
            "Of those sent",
            *(("Benign blocked", "Of those sent", "Standing") if twins else ()),
        ),
        rows=tuple(
            row(
                name(each.name),
                each.candidates,
                measure := of_estimate(each.passed),
                counts(measure),
                *(_beside(each.name, attacker.twin) if attacker.twin and twins else ()),
            )
            for each in attacker.strategies
        ),
        note="As the model named them itself; exploratory, no correction for their number.",
        collapsed=True,
    )


def _beside(strategy: str, twin: RewordingCard) -> tuple[Cell, ...]:
    """What a strategy did to benign texts; words where none was sent."""
    for each in twin.strategies:
        if each.name == strategy:
            measure = of_estimate(each.blocked)
            return measure, counts(measure), words(each.standing.value)
    return words("none sent"), words(""), words("unknown")


def _spending_table(card: AdaptiveCard, attacker: AttackerCard) -> Table:
    return Table(
        id=f"adaptive-models-{slug(card.name)}",
        title=f"{card.name}: what the models of the attack consumed",
        columns=columns(
            *(
                "Account",
                "Calls",
                "Failed",
                "Tokens read",
                "Tokens written",
                "Cost",
                "Calls for each attack that fell",
            ),
        ),
        rows=tuple(
            row(*_spent(account, attacker, spent)) for account, spent in _accounts(attacker)
        ),
        note="None of these is a call of the defense. Tokens and cost are those of calls whose "
        "service told them, or whose price is known.",
        collapsed=True,
    )


def _accounts(attacker: AttackerCard) -> Iterator[tuple[str, UsageTotals]]:
    """Yield what was spent on attacks, then on their benign twin."""
    yield from attacker.spending.items()
    if attacker.twin is not None:
        for account, spent in attacker.twin.spending.items():
            yield f"{account}, benign texts", spent


def _spent(account: str, attacker: AttackerCard, spent: UsageTotals) -> tuple[Cell, ...]:
    per = attacker.per_bypass(spent.calls) if account in attacker.spending else None
    none = "none fell" if account in attacker.spending else "the evaluator's"
    told = (spent.tokens_read, spent.tokens_written) if spent.reported else (None, None)
    return (
        words(account),
        count(spent.calls),
        count(spent.failed),
        *(TextCell(text="not told") if each is None else count(each) for each in told),
        TextCell(text="no price") if spent.cost is None else figure(spent.cost, Unit.NUMBER),
        TextCell(text=none) if per is None else figure(per, Unit.COUNT),
    )


def attacker_text(attacker: AttackerCard) -> str:
    """Name the models of an attack."""
    critic = f"; closeness guessed by {attacker.critic.model}" if attacker.critic else ""
    if not attacker.has_judge:
        return f"{attacker.model}; nobody judged whether candidates ask for the same{critic}"
    told = f"{attacker.model}; sameness judged by {attacker.judge}"
    if attacker.tau is not None:
        told += f", cosine {attacker.tau:g} and above (tau: {attacker.calibration})"
    return f"{told}{critic}"


def control_sentences(card: AdaptiveCard) -> Iterator[tuple[str, str]]:
    """Say what the benign twin and the critic of an attacker model came to."""
    attacker = card.attacker
    if attacker is None or not attacker.attacks.trials:
        return
    if attacker.twin is not None:
        yield "Benign twin", twin_sentence(card.name, attacker.twin)
    if attacker.critic is not None:
        yield "Critic", critic_sentence(card.name, attacker.critic)


def brought_sentence(name: str, attacker: AttackerCard) -> str:
    """Say what the attacker model brought through that could be proved."""
    if not attacker.attacks.trials:
        return f"{name}: the rounds before left no attack to the attacker model"
    return (
        f"{name}: of the attacks it was given, the attacker model brought "
        f"{rate_text(attacker.attacks)} through, proved; {count_text(attacker.only)} fell to "
        "nothing else"
    )


def cost_text(attacker: AttackerCard) -> str:
    """Say what the models consumed on attacks, and what that is for each attack that fell."""
    asked = sum(each.calls for each in attacker.spending.values())
    tokens = sum(each.tokens_read + each.tokens_written for each in attacker.spending.values())
    cost = sum(each.cost or 0.0 for each in attacker.spending.values())
    parts = [f"{count_text(asked)} calls", f"{count_text(tokens)} tokens told"]
    if any(each.priced for each in attacker.spending.values()):
        parts.append(f"{cost:.4g} of the price table's currency")
    who = "attacker model, judge and critic" if attacker.critic else "attacker model and judge"
    each_calls = attacker.per_bypass(asked)
    if each_calls is None:
        return f"{who} took {', '.join(parts)}; no attack fell to them"
    per = f"{value_text(each_calls, Unit.COUNT)} calls"
    return f"{who} took {', '.join(parts)}: {per} for each attack that fell"


def attacker_cautions(card: AdaptiveCard) -> Iterator[str]:
    """Say what keeps a reader from taking the figures of an attacker model at face value."""
    attacker = card.attacker
    if attacker is None or not attacker.attacks.trials:
        return
    yield from _proof_cautions(card.name, attacker)
    if not attacker.calls_left:
        yield (
            f"{card.name}: the bound on calls of the attacker model was reached, so some attacks "
            "got fewer tries"
        )
    for account, spent in attacker.spending.items():
        if spent.failed and account != "critic":  # which has a line of its own
            yield (
                f"{card.name}: {count_text(spent.failed)} of {count_text(spent.calls)} {account} "
                "calls failed; they count in no rate"
            )
    if attacker.unjudged:
        yield (
            f"{card.name}: {count_text(attacker.unjudged)} candidates got no verdict on sameness "
            "that can be read; they were not sent"
        )
    if attacker.twin is not None:
        yield from twin_cautions(card.name, attacker.twin)
    if attacker.critic is not None:
        yield from critic_cautions(card.name, attacker.critic)


def _proof_cautions(name: str, attacker: AttackerCard) -> Iterator[str]:
    """Say what weakens the proof that candidates ask for the same."""
    if not attacker.has_judge:
        yield (
            f"{name}: no judge of sameness: {rate_text(attacker.unproved)} of the attacks came "
            "through as candidates that nobody proved (V4); they count in no other rate"
        )
    if attacker.tau is not None and attacker.calibration == _NOT_CALIBRATED:
        yield (
            f"{name}: tau not calibrated: nobody knows how often a cosine of "
            f"{attacker.tau:g} calls another request the same"
        )
    if attacker.is_same_model:
        yield f"{name}: the attacker model judged its own candidates"


def twin_sentence(name: str, twin: RewordingCard) -> str:
    """Say what the defense does to benign texts that the attacker model rewords."""
    if not twin.samples:
        return f"{name}: no benign text was reworded: the model sent no attack, or none is answered"
    if not twin.blocked.trials:
        return (
            f"{name}: the attacker model was asked to reword {count_text(twin.samples)} benign "
            "texts, and none came to be sent"
        )
    gap = measure_text(of_difference(twin.separation))
    return (
        f"{name}: benign texts reworded by the attacker model are blocked at "
        f"{rate_text(twin.blocked)}, as they are at {rate_text(twin.as_is)}; attacks it "
        f"reworded at {rate_text(twin.attacks_blocked)}, J {gap}: "
        f"{_MEANING[twin.standing]}{_doubt(twin)}"
    )


def _doubt(twin: RewordingCard) -> str:
    if twin.is_clear or twin.standing is OperatorClass.UNKNOWN:
        return ""
    return ", by these counts, which are too few to be sure"


def twin_cautions(name: str, twin: RewordingCard) -> Iterator[str]:
    """Say what of the benign twin failed."""
    for account, spent in twin.spending.items():
        if spent.failed:
            yield (
                f"{name}: {count_text(spent.failed)} of {count_text(spent.calls)} {account} calls "
                "about benign texts failed; they count in no rate"
            )
    if twin.unjudged:
        yield (
            f"{name}: {count_text(twin.unjudged)} benign candidates got no verdict on sameness "
            "that can be read; they were not sent"
        )


def critic_sentence(name: str, critic: CriticCard) -> str:
    """Say what a critic was asked and how it answered."""
    if critic.has_scores:
        return (
            f"{name}: the critic ({critic.model}) was not asked: the defense tells its score (A2), "
            "which the attacker model is shown"
        )
    if not critic.spending.calls:
        return f"{name}: the critic ({critic.model}) was left nothing to guess"
    return (
        f"{name}: the critic ({critic.model}) was asked {count_text(critic.spending.calls)} times "
        f"how close a blocked candidate came; {rate_text(critic.guessed)} of its answers hold a "
        "figure. It chose which candidates the attacker model was shown, and nothing else"
    )


def critic_cautions(name: str, critic: CriticCard) -> Iterator[str]:
    """Say what keeps a reader from trusting a critic's choice."""
    if critic.is_also and not critic.has_scores:
        yield f"{name}: the critic is the same model as {critic.is_also}"
    if critic.spending.failed:
        yield (
            f"{name}: {count_text(critic.spending.failed)} of "
            f"{count_text(critic.spending.calls)} critic calls failed; no figure came of them"
        )
    for kind, rate in (("refused", critic.refused), ("cannot be read", critic.invalid)):
        if rate.successes:
            share = rate_text(rate)
            yield f"{name}: of the critic's answers {share} {kind}; no figure came of them"
