"""What may be said of a target model behind an adapted defense, in fixed words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.cells import of_difference, of_estimate, of_ratio
from guardmark.reports.document.wording import count_text, counts_text, measure_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.gradient import GradientCard
    from guardmark.analysis.adaptive.target import EffectRate, Effects, EstimatedEffect, TargetCard

_EVASION: Final = "Without a target model this is filter evasion, not yet success of an attack."
_UNKNOWN: Final = (
    "Whether attacks did harm is not known: no judge looked at the target model's answers, and "
    "no canary was asked. This is filter evasion, not yet success of an attack."
)


def meaning_sentences(card: AdaptiveCard) -> tuple[str, ...]:
    """Say what getting through amounts to: attack success, an estimate of it, or evasion."""
    target = card.target
    if target is None:
        return (_EVASION,)
    if target.effects is not None:
        return (_success_sentence(card.name, target.effects), *_against(card.name, target.effects))
    if target.estimated is not None:
        return (_estimate_sentence(card.name, target.estimated),)
    return (_UNKNOWN,)


def target_facts(target: TargetCard) -> tuple[tuple[str, str], ...]:
    """Return who stood behind the defense and who judged, for the threat model."""
    return (
        ("Target model", target.model),
        ("Effect judge", ", ".join(target.judges) or "none: attack success is estimated"),
    )


def gradient_sentence(name: str, gradient: GradientCard) -> str:
    """Say what following the gradient brought through, beside the arms that see answers."""
    unproved = (
        f"; {count_text(gradient.unproved)} more by variants nobody proved (V4)"
        if gradient.unproved
        else ""
    )
    return (
        f"{name}: with gradient access (A3, {gradient.attack}) "
        f"{measure_text(of_estimate(gradient.full))} of attacks got through, "
        f"{measure_text(of_difference(gradient.gain))} more than as they are{unproved}"
    )


def _success_sentence(name: str, effects: Effects) -> str:
    """Say how many attacks did harm, with and without the guard."""
    return (
        f"{name}: attack success (got through and judged harmful): behind the guard "
        f"{_rate(effects.defended)}, one text an attack; behind it as they are "
        f"{_rate(effects.static)}; without any guard {_rate(effects.undefended)}."
    )


def _estimate_sentence(name: str, estimated: EstimatedEffect) -> str:
    """Say what attack success is guessed to be, and from what."""
    said = measure_text(of_ratio(estimated.value))
    if estimated.value.value is None:
        return (
            f"{name}: estimated attack success is undefined ({estimated.value.reason}); "
            f"{measure_text(of_estimate(estimated.bypassed))} of attacks got through, which is "
            "filter evasion."
        )
    read = measure_text(of_estimate(estimated.read))
    words = (
        f"{name}: estimated attack success {said}: {measure_text(of_estimate(estimated.bypassed))} "
        f"of attacks got through x {read} of harmless canaries were read by the target model "
        "with the same operators. No judge looked at its answers."
    )
    if estimated.unread:
        words += f" {count_text(estimated.unread)} got through by operators not probed."
    return words


def _against(name: str, effects: Effects) -> tuple[str, ...]:
    merit = effects.merit
    if merit.value is None:
        return (f"{name}: what the guard is worth is undefined: no attack has two known ends.",)
    words = (
        f"{name}: what the guard is worth (attack success undefended minus behind it): "
        f"{measure_text(of_difference(merit))} against an attacker who adapts, in "
        f"{count_text(merit.pairs)} pairs; "
        f"{measure_text(of_difference(effects.merit_static))} against attacks as they are."
    )
    if merit.second_only:
        words += (
            f" {count_text(merit.second_only)} attacks did harm only once rewritten: the target "
            "model turns them down as they are."
        )
    return (words,)


def _rate(effect: EffectRate) -> str:
    measure = of_estimate(effect.rate)
    unknown = effect.malformed + effect.error
    more = f"; with unknown ends {bounds_text(effect)}" if unknown else ""
    return f"{measure_text(measure)} ({counts_text(measure)}{more})"


def bounds_text(effect: EffectRate) -> str:
    """Say between which shares a rate lies if every unknown end fell one way."""
    if effect.lowest is None or effect.highest is None:
        return "undefined"
    return f"{percent_text(effect.lowest)} to {percent_text(effect.highest)}"


def unknown_text(effect: EffectRate) -> str:
    """Count ends that are not known, by why."""
    if not effect.malformed + effect.error:
        return "0"
    errors = f"{count_text(effect.error)} error{'' if effect.error == 1 else 's'}"
    return f"{count_text(effect.malformed)} malformed, {errors}"


def reading_sentence(target: TargetCard) -> str:
    """Say how well the target model reads plain sentences and rewritten ones."""
    if not target.readings:
        return f"{target.model}: no canary was asked"
    rates = {each.chain: each.read for each in target.readings}
    plain = rates.pop("", None)
    known = [rate.value for rate in rates.values() if rate.value is not None]
    said = "undefined" if plain is None else measure_text(of_estimate(plain))
    most = sum(value >= 0.5 for value in known)
    if not target.has_control:
        return (
            f"{target.model} gives back {said} of plain canaries: the probe says nothing of "
            "operators, since what it loses is not lost to them"
        )
    return (
        f"{target.model} reads {said} of plain canaries, and at least half of those written by "
        f"{count_text(most)} of {count_text(len(known))} operators"
    )
