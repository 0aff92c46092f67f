"""`guardmark attacks`: the operators of the battery, looked at and tried by hand."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from guardmark.cli.labels import calibrate_command
from guardmark.cli.terminal import echo, echo_json, echo_raw

if TYPE_CHECKING:
    from guardmark.attacks.contract import Operator, OperatorChain, Variant


@click.group()
def attacks_command() -> None:
    """Hold the commands."""


attacks_command.add_command(calibrate_command)


@attacks_command.command("list")
@click.option("--family", "wanted")
@click.option("--battery", "of_battery", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def _list(*, wanted: str | None, of_battery: bool, as_json: bool) -> None:
    from guardmark.attacks.catalogue import family, operators
    from guardmark.attacks.tables import families

    if of_battery:
        _print_battery(as_json=as_json)
        return
    listed = operators() if wanted is None else family(wanted)
    if as_json:
        echo_json(json.dumps([_facts(one) for one in listed], indent=2))
        return
    width = max(len(one.name) for one in listed)
    last = ""
    for one in listed:
        if one.family != last:
            last = one.family
            echo(f"{last}  {families()[last]}")
        decoder = "decoder" if one.needs_decoder else ""
        echo(
            f"  {one.name:<{width}}  {one.tier.value:<8}  {one.legit_use.value:<6}  "
            f"{decoder:<7}  {one.summary}"
        )


def _print_battery(*, as_json: bool) -> None:
    from guardmark.attacks.battery import BATTERY_VERSION, NOT_TRIED, battery, lock_digest

    chains = battery()
    if as_json:
        content = {
            "version": BATTERY_VERSION,
            "lock": lock_digest(),
            "chains": [{"key": chain.key, "tier": chain.tier.value} for chain in chains],
            "not_tried": NOT_TRIED,
        }
        echo_json(json.dumps(content, indent=2))
        return
    echo(f"{BATTERY_VERSION}, {len(chains)} chains, lock {lock_digest()[:12]}")
    for position, chain in enumerate(chains, start=1):
        echo(f"  {position:>2}  {chain.tier.value:<8}  {chain.key}")
    echo(f"Not tried: {NOT_TRIED}.")


@attacks_command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True)
def _show(*, name: str, as_json: bool) -> None:
    from guardmark.attacks.catalogue import operator

    shown = operator(name)
    if as_json:
        echo_json(json.dumps(_facts(shown), indent=2))
        return
    echo(f"{shown.key}  {shown.summary}")
    echo(f"  family         {shown.family}, {shown.slot.name.lower()} in a chain")
    echo(f"  tier           {shown.tier.value}, promised for {shown.domain_words}")
    echo(f"  honest use     {shown.legit_use.value}")
    echo(f"  needs decoder  {'yes' if shown.needs_decoder else 'no'}")
    echo(f"  seed           {'matters' if shown.seeded else 'does not matter'}")
    for parameter in shown.parameters:
        first, *others = map(str, parameter.values)
        more = f", or {', '.join(others)}" if others else ""
        echo(f"  {parameter.name:<13}  {first} unless set{more}")


@attacks_command.command("apply")
@click.argument("chain")
@click.argument("text", required=False)
@click.option("--seed", default=0, show_default=True)
@click.option("--try", "try_index", default=0, show_default=True)
@click.option("--keep", multiple=True)
@click.option("--wordnet", type=click.Path(exists=True, file_okay=False))
@click.option("--raw", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def _apply(
    *,
    chain: str,
    text: str | None,
    seed: int,
    try_index: int,
    keep: tuple[str, ...],
    wordnet: str | None,
    raw: bool,
    as_json: bool,
) -> None:
    from guardmark.attacks.application import apply, seed_for
    from guardmark.attacks.catalogue import parse_chain

    parsed = parse_chain(chain, _extra(wordnet))
    original = _given(text)
    drawn = seed_for(seed, parsed.key, "command line", try_index)
    attempt = apply(parsed, original, seed=drawn, must_keep=keep)
    if as_json:
        echo_json(json.dumps(_outcome(parsed, original, attempt), indent=2))
    else:
        _tell(parsed, original, attempt, raw=raw)


def _extra(wordnet: str | None) -> tuple[Operator, ...]:
    """Return the operators that are not in the catalogue."""
    if wordnet is None:
        return ()
    from pathlib import Path

    from guardmark.attacks.operators.wordnet import wordnet_operator

    return (wordnet_operator(Path(wordnet)),)


def _given(text: str | None) -> str:
    """Return the argument, or standard input without its last line feed."""
    from guardmark.core.errors import DatasetError

    try:
        given = sys.stdin.read().removesuffix("\n") if text is None else text
        given.encode()
    except UnicodeError:
        raise DatasetError("The text is not UTF-8. Convert it first.") from None
    return given


def _tell(chain: OperatorChain, original: str, attempt: Variant, *, raw: bool) -> None:
    from guardmark.core.errors import DatasetError

    if not attempt.is_variant:
        reason = attempt.reason or f"{chain.key} changes nothing in this text"
        raise DatasetError(f"No variant: {reason}.")
    shown = attempt.text if raw or not sys.stdout.isatty() else _escaped(attempt.text)
    echo_raw(shown)  # the variant itself, for the next program
    tier = attempt.tier.value if attempt.tier is not None else ""
    judge = " (V3 if a judge finds it the same request)" if attempt.needs_judge else ""
    grown = len(attempt.text) / max(len(original), 1)
    echo(f"{chain.key}: {tier}{judge}, {grown:.1f} times as long.", err=True)


def _escaped(text: str) -> str:
    """Write what a terminal would not show, or would obey, as escapes."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def _facts(operator: Operator) -> dict[str, object]:
    """Return what `--json` says of an operator."""
    return {
        **{name: getattr(operator, name) for name in ("name", "version", "family")},
        "slot": operator.slot.name.lower(),
        "tier": operator.tier.value,
        "legit_use": operator.legit_use.value,
        "needs_decoder": operator.needs_decoder,
        "seeded": operator.seeded,
        "parameters": {one.name: list(one.values) for one in operator.parameters},
        "domain": operator.domain_words,
        "summary": operator.summary,
    }


def _outcome(chain: OperatorChain, original: str, attempt: Variant) -> dict[str, object]:
    """Return what `--json` says of an application."""
    return {
        "chain": chain.key,
        "fate": attempt.status.value,
        "text": attempt.text,
        "tier": attempt.tier,
        "needs_judge": attempt.needs_judge,
        "applied": list(attempt.applied),
        "expansion": len(attempt.text) / max(len(original), 1),
        "reason": attempt.reason,
    }
