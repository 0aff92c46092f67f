"""`guardmark attacks`: the operators of the battery, looked at and tried by hand."""

from __future__ import annotations

import json
import sys
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.calibrate import calibrate_command
from guardmark.cli.terminal import echo, echo_json, echo_raw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.attacks.contract import Operator, OperatorChain, Variant


@click.group(
    help=(
        "List, describe and apply the operators that adaptive attacks are made of; "
        "calibrate the embeddings that judge sameness."
    )
)
def attacks_command() -> None:
    """Hold the commands."""


attacks_command.add_command(calibrate_command)


@attacks_command.command("list", help="List every operator, or the chains of the fixed battery.")
@click.option("--family", "wanted", help="Only one family, F1 to F13, or F15.")
@click.option("--battery", "of_battery", is_flag=True, help="The fixed battery, in order.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _list(*, wanted: str | None, of_battery: bool, as_json: bool) -> None:
    from guardmark.attacks.catalogue import family, operators
    from guardmark.attacks.tables import families

    if of_battery:
        _print_battery(as_json=as_json)
        return
    listed: Sequence[Operator] = operators()
    if wanted is not None:
        listed = family(wanted)
    if as_json:
        echo_json(json.dumps([one.facts() for one in listed], indent=2))
        return
    width = max(len(one.name) for one in listed)
    for name, members in groupby(listed, key=attrgetter("family")):
        echo(f"{name}  {families()[name]}")
        for one in members:
            needs = ""
            if one.needs_decoder:
                needs = "decoder"
            facts = f"{one.tier.value:<8}  {one.legit_use.value:<6}  {needs:<7}"
            echo(f"  {one.name:<{width}}  {facts}  {one.summary}")


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


@attacks_command.command("show", help="Describe one operator: tier, parameters, domain.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _show(*, name: str, as_json: bool) -> None:
    from guardmark.attacks.catalogue import operator

    shown = operator(name)
    if as_json:
        echo_json(json.dumps(shown.facts(), indent=2))
        return
    needs_decoder, seed = "no", "does not matter"
    if shown.needs_decoder:
        needs_decoder = "yes"
    if shown.seeded:
        seed = "matters"
    echo(f"{shown.key}  {shown.summary}")
    echo(f"  family         {shown.family}, {shown.slot.name.lower()} in a chain")
    echo(f"  tier           {shown.tier.value}, promised for {shown.domain_words}")
    echo(f"  honest use     {shown.legit_use.value}")
    echo(f"  needs decoder  {needs_decoder}")
    echo(f"  seed           {seed}")
    for parameter in shown.parameters:
        first, *others = map(str, parameter.values)
        more = ""
        if others:
            more = f", or {', '.join(others)}"
        echo(f"  {parameter.name:<13}  {first} unless set{more}")


@attacks_command.command(
    "apply",
    help=(
        "Rewrite a text (or standard input) by CHAIN: operators joined by '+', "
        "parameters in parentheses, such as 'synonym + base64(wrapper=none)'. The "
        "variant goes to standard output, what is proved of it to standard error."
    ),
)
@click.argument("chain")
@click.argument("text", required=False)
@click.option("--seed", default=0, show_default=True, help="Seed of the draws.")
@click.option("--try", "try_index", default=0, show_default=True, help="Which draw, from 0.")
@click.option("--keep", multiple=True, help="Span that must not be altered; repeatable.")
@click.option(
    "--wordnet",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of a WordNet database; adds the operator wordnet_synonym.",
)
@click.option("--raw", is_flag=True, help="Print invisible characters as they are.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _apply(
    *,
    chain: str,
    text: str | None,
    seed: int,
    try_index: int,
    keep: tuple[str, ...],
    wordnet: Path | None,
    raw: bool,
    as_json: bool,
) -> None:
    from guardmark.attacks.application import apply, seed_for
    from guardmark.attacks.catalogue import parse_chain
    from guardmark.attacks.operators.wordnet import wordnet_operator

    extra: tuple[Operator, ...] = ()
    if wordnet is not None:
        extra = (wordnet_operator(wordnet),)
    parsed = parse_chain(chain, extra)
    original = _given(text)
    drawn = seed_for(seed, parsed.key, "command line", try_index)
    attempt = apply(parsed, original, seed=drawn, must_keep=keep)
    if as_json:
        echo_json(json.dumps({"chain": parsed.key, **attempt.facts(original)}, indent=2))
    else:
        _tell(parsed, original, attempt, raw=raw)


def _given(text: str | None) -> str:
    """Return the argument, or standard input without its last line feed."""
    from guardmark.core.errors import DatasetError

    try:
        if text is None:
            text = sys.stdin.read().removesuffix("\n")
        text.encode()
    except UnicodeError:
        raise DatasetError("The text is not UTF-8. Convert it first.") from None
    return text


def _plain_character(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("unicode_escape").decode()


def _tell(chain: OperatorChain, original: str, attempt: Variant, *, raw: bool) -> None:
    """Print a variant, and to standard error what is proved of it."""
    from guardmark.core.errors import DatasetError

    if not attempt.is_variant:
        reason = attempt.reason or f"{chain.key} changes nothing in this text"
        raise DatasetError(f"No variant: {reason}.")
    shown = attempt.text  # the variant itself, for the next program
    if sys.stdout.isatty() and not raw:  # what it would not show, or would obey, as escapes
        shown = "".join(map(_plain_character, shown))
    echo_raw(shown)
    proved = ""
    if attempt.tier is not None:
        proved = attempt.tier.value
    if attempt.needs_judge:
        proved += " (V3 if a judge finds it the same request)"
    grown = len(attempt.text) / max(len(original), 1)
    echo(f"{chain.key}: {proved}, {grown:.1f} times as long.", err=True)
