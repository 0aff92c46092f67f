"""The part of the chapter on adaptive rounds that tells of an attacker model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.adaptive.attacker import (
    attacker_cautions,
    brought_sentence,
    control_sentences,
    cost_text,
)
from guardmark.reports.document.blocks import Bullets, Paragraph, Row, Table, TextCell, Tone, Unit
from guardmark.reports.document.cells import (
    columns,
    count,
    counts,
    figure,
    name,
    of_difference,
    of_estimate,
    row,
    slug,
    words,
)
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.adaptive.attacker import AttackerCard
    from guardmark.analysis.adaptive.attacker_rows import Spending
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.rewording import RewordingCard
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
    blocks: list[Block] = [_figures(card, attacker), Bullets(lines=(brought, cost, *controls))]
    if cautions := tuple(attacker_cautions(card)):
        blocks.append(Bullets(lines=cautions, tone=Tone.WARNING))
    if attacker.strategies:
        blocks.append(_strategies(card, attacker))
    if attacker.twin is not None and attacker.twin.samples:
        blocks.append(_twin(card.name, attacker.twin, has_judge=attacker.has_judge))
    blocks.append(_spending(card, attacker))
    return blocks


def _figures(card: AdaptiveCard, attacker: AttackerCard) -> Table:
    return Table(
        id=f"adaptive-attacker-{slug(card.name)}",
        title=f"{card.name}: the attacker model",
        columns=columns("Figure", "Rate", "Of"),
        rows=tuple(_row(label, of_estimate(attacker.rates[key])) for key, label in _LABELS.items()),
        note=_NOTE,
    )


def _row(label: str, measure: FigureCell) -> Row:
    return row(label, measure, counts(measure))


def _twin(defense: str, twin: RewordingCard, *, has_judge: bool) -> Table:
    proof = "the same judge of sameness" if has_judge else "nobody to judge sameness"
    unsure = "" if twin.is_clear else " (too few to be sure)"
    change, separation = of_difference(twin.change), of_difference(twin.separation)
    return Table(
        id=f"adaptive-attacker-twin-{slug(defense)}",
        title=f"{defense}: benign texts reworded by the attacker model",
        columns=columns("Figure", "Rate", "Of"),
        rows=(
            *(_row(label, of_estimate(twin.rates[key])) for key, label in _TWIN.items()),
            _row("Benign reworded minus as they are, candidate by candidate", change),
            _row("J: attacks blocked minus benign blocked, both reworded", separation),
            row("Standing", f"{twin.standing.value}{unsure}", ""),
        ),
        note=f"{count_text(twin.samples)} benign samples, drawn with the seed, in one call each: "
        f"the same model and strategies, {proof}, the label untold. The evaluator pays.",
    )


def _strategies(card: AdaptiveCard, attacker: AttackerCard) -> Table:
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


def _spending(card: AdaptiveCard, attacker: AttackerCard) -> Table:
    return Table(
        id=f"adaptive-models-{slug(card.name)}",
        title=f"{card.name}: what the models of the attack consumed",
        columns=columns(
            "Account",
            "Calls",
            "Failed",
            "Tokens read",
            "Tokens written",
            "Cost",
            "Calls for each attack that fell",
        ),
        rows=tuple(
            row(*_spent(account, attacker, spent)) for account, spent in _accounts(attacker)
        ),
        note="None of these is a call of the defense. Tokens and cost are those of calls whose "
        "service told them, or whose price is known.",
        collapsed=True,
    )


def _accounts(attacker: AttackerCard) -> Iterator[tuple[str, Spending]]:
    """Yield what was spent on attacks, then on their benign twin."""
    yield from attacker.spending.items()
    if attacker.twin is not None:
        for account, spent in attacker.twin.spending.items():
            yield f"{account}, benign texts", spent


def _spent(account: str, attacker: AttackerCard, spent: Spending) -> tuple[Cell, ...]:
    per = attacker.per_bypass(spent.calls) if account in attacker.spending else None
    none = "none fell" if account in attacker.spending else "the evaluator's"
    told = (spent.tokens_read, spent.tokens_written) if spent.reported else (None, None)
    return (
        words(account),
        count(spent.calls),
        count(spent.failed),
        *(TextCell(text="not told") if each is None else count(each) for each in told),
        figure(spent.cost, Unit.NUMBER) if spent.priced else TextCell(text="no price"),
        TextCell(text=none) if per is None else figure(per, Unit.COUNT),
    )
