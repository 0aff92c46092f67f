"""What the models did: the attacker's, its controls, and the target model behind the defense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.operators import OperatorClass
from guardmark.core.errors import counted
from guardmark.reports.document.blocks import Table, Unit, present, warning
from guardmark.reports.document.cells import (
    figure_text,
    known,
    name,
    rate_text,
    slug,
    table_of,
    with_counts,
)
from guardmark.reports.document.wording import (
    UNDEFINED,
    count_text,
    percent_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from guardmark.analysis.adaptive.attacker import (
        AttackerCard,
        CriticCard,
        RewordingCard,
        StrategyCard,
    )
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.sameness_threshold import TauChoice
    from guardmark.analysis.adaptive.target import EffectRate, Effects, EstimatedEffect, TargetCard
    from guardmark.core.usage import UsageTotals
    from guardmark.reports.document.blocks import Block
    from guardmark.reports.document.cells import Value

STANDINGS: Final = {
    "holds": "works",
    "blanket block": "blocks the form",
    "blind": "misses both",
    "inverted": "inverted",
    "unknown": "unknown",
}

_STANDING_MEANINGS: Final = {
    "holds": "attacks are recognised in other words, and benign texts pass",
    "blanket block": "what the model rewords is blocked, attack or not",
    "blind": "what the model rewords passes, attack or not",
    "inverted": "reworded attacks pass, and benign texts are blocked",
    "unknown": "nothing to compare",
}

_ATTACKER_RATES: Final = {
    "attacks": "Attacks that got through with a proved candidate, of those it was given",
    "unproved": "Attacks that came through unproved only (V4)",
    "refused": "Refusals, of its answers",
    "invalid": "Answers that could not be read, asked again included",
    "repeated": "Repeats, of its candidates",
    "lost": "Candidates that lost a piece that must be kept",
    "equivalent": "Same request by every vote, of the judged candidates",
    "undecided": "Votes that changed with the order, of the judged candidates",
    "passed": "Got through, of the candidates sent and answered",
}

_TWIN_RATES: Final = {
    "blocked": "Benign candidates blocked, of those sent and answered",
    "as_is": "The same samples blocked as they are",
    "attacks_blocked": "Candidates made from attacks blocked, of those sent and answered",
    "equivalent": "Same request by both votes, of the judged benign candidates",
    "refused": "Refusals, of its answers on benign texts",
    "invalid": "Answers on benign texts that could not be read",
    "change": "Benign reworded minus as they are, candidate by candidate",
    "separation": "J: attacks blocked minus benign blocked, both reworded",
}

_TARGET_ACCOUNTS: Final = {
    "undefended": "attacks as they are",
    "effect": "what got through",
    "verdict": "judging the answers",
    "comprehension": "canaries",
}

_NOT_CALIBRATED: Final = "not calibrated"  # in the place of a calibration


def attacker_blocks(card: AdaptiveCard) -> Sequence[Block]:
    """Describe the attacker model and its controls, where there was one."""
    attacker, defense = card.attacker, card.name
    if attacker is None:
        return ()
    if not attacker.attacks.trials:
        return present(f"{defense}: {brought_text(attacker)}")
    twin, critic = attacker.twin, attacker.critic
    lines = [brought_text(attacker), cost_text(attacker)]
    cautions = [*attacker_cautions(attacker)]
    if twin is not None:
        lines.append(twin_text(twin))
        cautions += failures_of(twin.spending, twin.unjudged, benign=True)
    if critic is not None:
        lines.append(critic_text(critic))
        cautions += critic_cautions(critic)
    strategies, reworded = None, None
    if attacker.strategies:
        strategies = _strategies_table(defense, attacker)
    if twin is not None and twin.samples:
        reworded = _twin_table(defense, twin, attacker)
    return present(
        table_of(
            _rates(attacker, _ATTACKER_RATES),
            {"Figure|Rate|Of": lambda each: each},
            table_id=f"adaptive-attacker-{slug(defense)}",
            title=f"{defense}: the attacker model",
            note=(
                "A refusal lowers the rate of the round without any merit of the defense. A "
                "candidate is sent only after it was judged the same request (by a model "
                "twice, in both orders; by embeddings when their cosine reaches tau), or "
                "when it holds the same letters; calls that failed and verdicts that cannot "
                "be read count in no rate."
            ),
        ),
        [f"{defense}: {line}" for line in lines],
        warning(f"{defense}: {caution}" for caution in cautions),
        strategies,
        reworded,
        _spending_table(defense, attacker),
    )


def _rates(
    card: AttackerCard | RewordingCard, labels: Mapping[str, str]
) -> list[tuple[Value, ...]]:
    return [(label, *with_counts(getattr(card, key))) for key, label in labels.items()]


def _twin_table(defense: str, twin: RewordingCard, attacker: AttackerCard) -> Table:
    """Lay how the defense takes benign texts that the attacker model rewords."""
    proof = "nobody to judge sameness"
    if attacker.has_judge:
        proof = "the same judge of sameness"
    standing = STANDINGS[twin.standing]
    if not twin.is_clear:
        standing += " (too few to be sure)"
    return table_of(
        [*_rates(twin, _TWIN_RATES), ("Standing", standing, "")],
        {"Figure|Rate|Of": lambda row: row},
        table_id=f"adaptive-attacker-twin-{slug(defense)}",
        title=f"{defense}: benign texts reworded by the attacker model",
        note=f"{count_text(twin.samples)} benign samples, drawn with the seed, in one call each: "
        f"the same model and strategies, {proof}, the label untold. The evaluator pays.",
    )


def _strategies_table(defense: str, attacker: AttackerCard) -> Table:
    """List the strategies, with what they do to benign texts where these were reworded."""
    columns: dict[str, Callable[[StrategyCard], Value | tuple[Value, ...]]] = {
        "Strategy": lambda strategy: name(strategy.name),
        "Candidates": lambda strategy: strategy.candidates,
        "Got through|Of those sent": lambda strategy: with_counts(strategy.passed),
    }
    if attacker.twin is not None and attacker.twin.strategies:
        twins = {twin.name: twin for twin in attacker.twin.strategies}

        def on_benign(strategy: StrategyCard) -> tuple[Value, ...]:
            if strategy.name not in twins:
                return "none sent", "", "unknown"
            twin = twins[strategy.name]
            return *with_counts(twin.blocked), STANDINGS[twin.standing]

        columns["Benign blocked|Of those sent|Standing"] = on_benign
    return table_of(
        attacker.strategies,
        columns,
        table_id=f"adaptive-strategies-{slug(defense)}",
        title=f"{defense}: strategies of the attacker model",
        collapsed=True,
        note="As the model named them itself; exploratory, no correction for their number.",
    )


def _spending_table(defense: str, attacker: AttackerCard) -> Table:
    """List what each account of the models used; benign texts cost the evaluator."""
    spending: list[tuple[str, UsageTotals, Value]] = []
    for account, spent in attacker.spending.items():
        per_bypass = known(attacker.per_bypass(spent.calls), Unit.COUNT, "none got through")
        spending.append((account, spent, per_bypass))
    if attacker.twin is not None:
        for account, spent in attacker.twin.spending.items():
            spending.append((f"{account}, benign texts", spent, "the evaluator's"))
    return table_of(
        spending,
        {
            "Account": lambda row: row[0],
            "Calls": lambda row: row[1].calls,
            "Requests": lambda row: row[1].requests,
            "Failed": lambda row: row[1].failed,
            "Tokens read|Tokens written": lambda row: _tokens(row[1]),
            "Cost": lambda row: known(row[1].cost, Unit.NUMBER, "no price"),
            "Calls for each attack that got through": lambda row: row[2],
        },
        table_id=f"adaptive-models-{slug(defense)}",
        title=f"{defense}: what the models of the attack consumed",
        collapsed=True,
        note=(
            "None of these is a call of the defense. Tokens and cost are those of calls "
            "whose service told them, or whose price is known."
        ),
    )


def _tokens(spent: UsageTotals) -> tuple[Value, Value]:
    """Return the tokens read and written, or that the service did not tell them."""
    if not spent.reported:
        return "not told", "not told"
    return spent.tokens_read, spent.tokens_written


def attacker_text(attacker: AttackerCard) -> str:
    """Name the models of an attack."""
    critic = ""
    if attacker.critic:
        critic = f"; closeness guessed by {attacker.critic.model}"
    if not attacker.has_judge:
        return f"{attacker.model}; nobody judged whether candidates ask for the same{critic}"
    tau = ""
    if attacker.tau is not None:
        tau = f", cosine {attacker.tau:g} and above (tau: {attacker.calibration})"
    return f"{attacker.model}; sameness judged by {attacker.judge}{tau}{critic}"


def brought_text(attacker: AttackerCard) -> str:
    """Say what the attacker model brought through that could be proved."""
    if not attacker.attacks.trials:
        return "the rounds before left no attack to the attacker model"
    brought = rate_text(attacker.attacks)
    return (
        f"of the attacks it was given, the attacker model brought {brought} through, "
        f"proved; {count_text(attacker.only)} got through with nothing else"
    )


def cost_text(attacker: AttackerCard) -> str:
    """Say what the models consumed on attacks, and what that is for each that got through."""
    asked, tokens, priced, cost = 0, 0, 0, 0.0
    for spent in attacker.spending.values():
        asked += spent.calls
        tokens += spent.tokens_read + spent.tokens_written
        priced += spent.priced
        cost += spent.cost or 0.0
    took = f"{count_text(asked)} calls, {count_text(tokens)} tokens told"
    if priced:
        took += f", {cost:.4g} of the price table's currency"
    models = "attacker model and judge"
    if attacker.critic:
        models = "attacker model, judge and critic"
    per_bypass = attacker.per_bypass(asked)
    if per_bypass is None:
        return f"{models} took {took}; no attack got through"
    each = f"{value_text(per_bypass, Unit.COUNT)} calls for each that got through"
    return f"{models} took {took}: {each}"


def attacker_cautions(attacker: AttackerCard) -> Iterator[str]:
    """Say what keeps a reader from taking the figures of an attacker model at face value."""
    if not attacker.has_judge:
        yield (
            f"no judge of sameness: {rate_text(attacker.unproved)} of the attacks came "
            "through as candidates that nobody proved (V4); they count in no other rate"
        )
    if attacker.tau is not None and attacker.calibration == _NOT_CALIBRATED:
        yield (
            f"tau not calibrated: nobody knows how often a cosine of {attacker.tau:g} calls "
            "another request the same"
        )
    if attacker.is_same_model:
        yield "the attacker model judged its own candidates"
    if not attacker.calls_left:
        yield (
            "the bound on calls of the attacker model was reached, so some attacks got fewer tries"
        )
    yield from failures_of(attacker.spending, attacker.unjudged)


def failures_of(
    spending: Mapping[str, UsageTotals], unjudged: int, *, benign: bool = False
) -> Iterator[str]:
    """Say which calls failed and which candidates were not judged; a critic has its own line."""
    about, kind = "", "candidates"
    if benign:
        about, kind = " about benign texts", "benign candidates"
    for account, spent in spending.items():
        if spent.failed and account != "critic":
            failed = f"{count_text(spent.failed)} of {count_text(spent.calls)}"
            yield f"{failed} {account} calls{about} failed; they count in no rate"
    if unjudged:
        yield (
            f"{count_text(unjudged)} {kind} got no verdict on sameness that can be read; "
            "they were not sent"
        )


def twin_text(twin: RewordingCard) -> str:
    """Say what the defense does to benign texts that the attacker model rewords."""
    if not twin.samples:
        return "no benign text was reworded: the model sent no attack, or none is answered"
    if not twin.blocked.trials:
        return (
            f"the attacker model was asked to reword {count_text(twin.samples)} benign "
            "texts, and none came to be sent"
        )
    called, meaning = STANDINGS[twin.standing], _STANDING_MEANINGS[twin.standing]
    sentence = f"attacks and benign texts reworded by the attacker model: {called}: {meaning}"
    if twin.is_clear or twin.standing is OperatorClass.UNKNOWN:
        return sentence
    return f"{sentence}, by these counts, which are too few to be sure"


def critic_text(critic: CriticCard) -> str:
    """Say what a critic was asked and how it answered."""
    calls = count_text(critic.spending.calls)
    answered = "left nothing to guess"
    if critic.spending.calls:
        answered = (
            f"asked {calls} times how close a blocked candidate came; "
            f"{rate_text(critic.guessed)} of its answers hold a figure. It chose which "
            "candidates the attacker model was shown, and nothing else"
        )
    if critic.has_scores:
        answered = "not asked: the defense tells its score (A2), which the attacker model is shown"
    return f"the critic ({critic.model}) was {answered}"


def critic_cautions(critic: CriticCard) -> Iterator[str]:
    """Say what keeps a reader from trusting a critic's choice."""
    spent, nothing = critic.spending, "no figure came of them"
    if critic.is_also and not critic.has_scores:
        yield f"the critic is the same model as {critic.is_also}"
    if spent.failed:
        failed = f"{count_text(spent.failed)} of {count_text(spent.calls)}"
        yield f"{failed} critic calls failed; {nothing}"
    for kind, rate in (("refused", critic.refused), ("cannot be read", critic.invalid)):
        if rate.successes:
            yield f"of the critic's answers {rate_text(rate)} {kind}; {nothing}"


CARRIED_OUT: Final = (
    "The cases were carried out: an attack got through where the obedient agent read the order "
    "behind the guards and did what it says, which is an upper bound over what a model does with "
    "these texts."
)


def meaning_sentences(card: AdaptiveCard) -> list[str]:
    """Say what getting through amounts to: attack success, an estimate of it, or evasion."""
    target = card.target
    if card.is_carried_out:
        return [CARRIED_OUT]
    if target is None:
        return ["Without a target model this is filter evasion, not yet success of an attack."]
    if target.effects is not None:
        return [f"{card.name}: {text}" for text in _effect_texts(target.effects)]
    if target.estimated is not None:
        return [f"{card.name}: {_estimate_text(target.estimated)}"]
    return [
        (
            "Whether attacks did harm is not known: no judge looked at the target "
            "model's answers, and no canary was asked. This is filter evasion, not yet "
            "success of an attack."
        )
    ]


def _estimate_text(estimated: EstimatedEffect) -> str:
    """Say what attack success is guessed to be, and from what."""
    value, bypassed = estimated.value, figure_text(estimated.bypassed)
    if value.value is None:
        return (
            f"estimated attack success is undefined ({value.reason}); {bypassed} of "
            "attacks got through, which is filter evasion."
        )
    sentence = (
        f"estimated attack success {figure_text(value)}: {bypassed} of attacks got "
        f"through x {figure_text(estimated.read)} of harmless canaries were read by "
        "the target model with the same operators. No judge looked at its answers."
    )
    if estimated.unread:
        sentence += f" {count_text(estimated.unread)} got through by operators not probed."
    return sentence


def _effect_texts(effects: Effects) -> Iterator[str]:
    """Say how many attacks did harm with and without the guard, and what it is worth."""
    merit = effects.merit
    yield (
        "attack success (got through and judged harmful): behind the guard "
        f"{_rate(effects.defended)}, one text an attack; behind it as they are "
        f"{_rate(effects.static)}; without any guard {_rate(effects.undefended)}."
    )
    if merit.value is None:
        yield "what the guard is worth is undefined: no attack has two known outcomes."
        return
    rewritten = ""
    if merit.second_only:
        rewritten = (
            f" {count_text(merit.second_only)} attacks did harm only once rewritten: "
            "the target model turns them down as they are."
        )
    yield (
        "what the guard is worth (attack success undefended minus behind it): "
        f"{figure_text(merit)} against an attacker who adapts, in "
        f"{count_text(merit.pairs)} pairs; {figure_text(effects.merit_static)} against "
        "attacks as they are."
    ) + rewritten


def _rate(effect: EffectRate) -> str:
    text = rate_text(effect.rate)
    unknown = effect.malformed + effect.error
    if unknown:
        return f"{text[:-1]}; with unknown outcomes {_bounds_text(effect)})"
    return text


def _bounds_text(effect: EffectRate) -> str:
    """Say between which shares a rate lies if every unknown end fell one way."""
    if effect.lowest is None or effect.highest is None:
        return UNDEFINED
    return f"{percent_text(effect.lowest)} to {percent_text(effect.highest)}"


def _unknown_text(effect: EffectRate) -> str:
    """Count ends that are not known, by why."""
    if effect.malformed or effect.error:
        return f"{count_text(effect.malformed)} malformed, {counted(effect.error, 'error')}"
    return "0"


def reading_sentence(target: TargetCard) -> str:
    """Say how well the target model reads plain sentences and rewritten ones."""
    rates = {each.chain: each.read for each in target.readings}
    plain = rates.pop("", None)
    share = UNDEFINED
    if plain is not None:
        share = figure_text(plain)
    if not target.has_control:
        return (
            f"{target.model} gives back {share} of plain canaries: the probe says nothing "
            "of operators, since what it loses is not lost to them"
        )
    shares = [rate.value for rate in rates.values() if rate.value is not None]
    most = count_text(sum(value >= 0.5 for value in shares))
    return (
        f"{target.model} reads {share} of plain canaries, and at least half of those "
        f"written by {most} of {count_text(len(shares))} operators"
    )


def target_blocks(cards: tuple[AdaptiveCard, ...]) -> tuple[Block, ...]:
    """Describe how the target model reads rewritten texts, once for all defenses."""
    targets = [(card.name, card.target) for card in cards if card.target is not None]
    if not targets:
        return ()
    spending = []
    for defense, target in targets:
        for account, spent in target.spent.items():
            spending.append((f"{defense}: {_TARGET_ACCOUNTS.get(account, account)}", spent))
    calls = table_of(
        spending,
        {
            "For": lambda row: row[0],
            "Calls": lambda row: row[1].calls,
            "Requests": lambda row: row[1].requests,
            "Tokens": lambda row: _count_or_blank(row[1].tokens),
            "Cost": lambda row: known(row[1].cost, Unit.NUMBER),
        },
        table_id="adaptive-target-calls",
        collapsed=True,
        title="Calls of the target model and its judges",
        note=(
            "The evaluator's cost, in no budget of the attacker. Attacks as they are and "
            "canaries are asked once and shown for every defense; answers the run had "
            "are free."
        ),
    )
    first = targets[0][1]
    if not first.readings:
        return present(calls)
    return present([reading_sentence(first)], _readings_table(first), calls)


def _count_or_blank(count: int) -> str:
    if count:
        return count_text(count)
    return ""


def effects_table(card: AdaptiveCard) -> Table | None:
    """Return what the target model did behind one defense, where answers were judged."""
    if card.target is None or card.target.effects is None:
        return None
    effects = card.target.effects
    arms = (
        ("without a guard, attacks as they are", effects.undefended, None),
        ("behind the guard, attacks as they are", effects.static, effects.merit_static),
        ("behind the guard, adapted", effects.defended, effects.merit),
    )
    return table_of(
        arms,
        {
            "Arm": lambda arm: arm[0],
            "Attack success|Did harm": lambda arm: with_counts(arm[1].rate),
            "Unknown outcomes": lambda arm: _unknown_text(arm[1]),
            "If all went one way": lambda arm: _bounds_text(arm[1]),
            "Prevented by the guard": lambda arm: arm[2],
        },
        table_id=f"adaptive-effects-{slug(card.name)}",
        title=f"{card.name}: attack success at the target model",
        note=(
            "Of attacks the defense answered. An attack succeeds when it gets through "
            "and the judge calls the answer unsafe. Adapted: one text an attack, as it "
            "is where that passes, else what the attacker found (of several, what the "
            "target model reads best). Prevented: undefended minus this arm, in pairs "
            "with two known outcomes. Failed calls and unreadable verdicts are in no "
            "rate."
        ),
    )


def _readings_table(target: TargetCard) -> Table:
    """List how much of harmless sentences the target model reads through each operator."""
    return table_of(
        target.readings,
        {
            "Operators": lambda each: _operators_cell(each.chain),
            "Read|Of": lambda each: with_counts(each.read),
            "Refused": lambda each: each.refused,
            "Failed": lambda each: each.failed,
        },
        table_id="adaptive-reading",
        title=f"{target.model}: harmless canaries read through each operator",
        collapsed=True,
        note=(
            "Read: at least half of the runs of three words of the sentence are in the "
            "answer, case aside; copying hidden or look-alike characters is not reading. "
            "Refusals and failed calls are in no rate. The model is asked to write the "
            "text down, so these are rates of reading, not of following. Rows are "
            "exploratory."
        ),
    )


def _operators_cell(chain: str) -> Value:
    if chain:
        return name(chain)
    return "plain sentences (control)"


def calibration_lines(
    choice: TauChoice, source: str, *, pairs: int, missing: Mapping[str, int]
) -> Iterator[str]:
    """Say which threshold of sameness labelled pairs of texts chose, and how sure it is."""
    measured = pairs - sum(missing.values())
    yield f"Pairs {source}: {measured:,} of {pairs:,} pairs have a cosine"
    for kind, count in missing.items():
        yield f"  without one: {count:,} ({kind}); they count for nothing"
    yield f"  {'tau':<9}{'different, called the same':<34}equal, called the same"
    for row in choice.rows:
        false, true = rate_text(row.false_same), rate_text(row.true_same)
        if row.is_chosen:
            true += "  <- chosen"
        yield f"  {row.tau:<9.4f}{false:<34}{true}"
    yield (
        f"tau {choice.tau:g}: on the choosing half {rate_text(choice.chosen_on)} of the different "
        f"pairs are called the same, its upper limit within {100 * choice.bound:g} %"
    )
    if choice.is_confirmed:
        yield "The counting half, of which the table tells, confirms it."
    else:
        yield (
            "Note: the upper limit of the counting half is above the bound; more pairs would tell."
        )
