"""Operators on attacks and on benign texts, and what remains of a repaired defense."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.adaptive.models import STANDINGS
from guardmark.reports.document.blocks import Listing, Table, Unit
from guardmark.reports.document.cells import (
    figure_text,
    name,
    number,
    rate_text,
    slug,
    table_of,
    with_counts,
)
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.operators import OperatorCard
    from guardmark.reports.document.blocks import Block
    from guardmark.reports.document.cells import Value

TIERS: Final = {
    "V0": "V0 same bytes inside",
    "V1": "V1 same text",
    "V2": "V2 a few typing errors",
    "V3-table": "V3-table listed words",
    "V3": "V3 judged the same",
    "V4": "V4 unproved",
}

_LISTED: Final = 4

_LONGEST: Final = 80
_WIDTH: Final = 96
_FLOW: Final = 72  # where a list is broken: after the word that passes it
_HEAD: Final = (
    "# Repairs found by guardmark adapt. Add the entries to `defenses:` of the configuration.",
    "# Chosen and attacked on attacks of this run: measure them on others before relying on them.",
)


def standing_sentence(card: AdaptiveCard) -> str:
    """Say how operators fare on attacks and on benign texts."""
    standings = Counter(STANDINGS[operator.standing] for operator in card.operators)
    if not standings or card.gain_in_all is None:
        return f"{card.name}: no operator was tried on benign texts"
    counts = ", ".join(
        f"{standing}: {count_text(count)}" for standing, count in sorted(standings.items())
    )
    tried = count_text(standings.total())
    return f"{card.name}: {tried} operators tried on benign texts too ({counts})"


def wrapper_sentence(card: AdaptiveCard) -> str:
    """Say which wrappers are blocked by themselves; empty where none is."""
    blocked = []
    for operator in card.operators:
        rate = operator.wrapper_blocked
        if operator.is_blocked_by_wrapper and rate is not None:
            blocked.append(f"{operator.chain} ({rate.successes}/{rate.trials})")
    if not blocked:
        return ""
    more = ""
    if len(blocked) > _LISTED:
        more = f" and {count_text(len(blocked) - _LISTED)} more"
    operators = f"{', '.join(blocked[:_LISTED])}{more}"
    return (
        f"{card.name}: blocks the wrapper whatever it carries, neutral sentences too: "
        f"{operators}; what these operators show is not the attack"
    )


def turns_sentence(card: AdaptiveCard) -> str:
    """Say what conversations got through, or that none was tried, and why; empty in old runs."""
    left_out = card.findings.get("left_out_over_turns", 0)
    if left_out:
        return (
            f"{card.name}: {count_text(int(str(left_out)))} operators that spread an order over "
            "turns were left out, since it is shown one text at a time (view conversation shows it "
            "the whole talk)"
        )
    if card.over_turns is None:
        return ""
    rate = card.over_turns
    return (
        f"{card.name}: a conversation over several turns got {count_text(rate.successes)} of "
        f"{count_text(rate.trials)} attacks through on which one was tried"
    )


def operator_tables(card: AdaptiveCard) -> list[Table]:
    """Return what operators do to a defense, and what they do to a text."""
    return [_against(card), _shapes(card)]


def _against(card: AdaptiveCard) -> Table:
    """Set what each operator does to attacks beside what it does to benign texts."""
    tiers, standings = TIERS, STANDINGS
    return table_of(
        card.operators,
        {
            "Operators": lambda operator: name(operator.chain),
            "Tier": lambda operator: tiers.get(operator.tier, operator.tier),
            "Attacks through": lambda operator: operator.bypassed,
            "Benign blocked": lambda operator: operator.benign_blocked,
            "Standing": lambda operator: standings[operator.standing],
            "Only this one": lambda operator: operator.unique,
        },
        table_id=f"adaptive-operators-{slug(card.name)}",
        title=f"{card.name}: operators on attacks and on benign texts",
        collapsed=True,
        texts=(
            "Tier",
            "Standing",
        ),
        note=(
            "Works: most attacks are blocked with it and most benign texts are not. "
            "Blocks the form: most of both are blocked, so the form is blocked and not "
            "the attack. Misses both: neither. Inverted: benign texts are blocked and "
            "attacks are not. A text that was tried twice counts once. Rows are "
            "exploratory: no correction for their number. Only this one: attacks that "
            "nothing else on the fixed list brought through."
        ),
    )


def _shapes(card: AdaptiveCard) -> Table:
    """List what each operator does to a text, and what is blocked of its wrapper alone."""
    target, note = card.target, ""
    cells: dict[str, Callable[[OperatorCard], Value | tuple[Value, ...]]] = {
        "Operators": lambda each: name(each.chain),
        "Wrapper alone|n": lambda each: with_counts(each.wrapper_blocked),
        "Growth": lambda each: number(each.expansion),
        "n": lambda each: count_text(each.expansion.trials),
        "Decoded|n": lambda each: with_counts(each.decoded),
    }
    if target is not None:
        cells["Read|n"] = lambda each: with_counts(target.read_rate(each.chain))
        note = (
            " Read: canary sentences whose words the target model gave back; see the "
            "section on the target model."
        )
    return table_of(
        card.operators,
        cells,
        table_id=f"adaptive-shapes-{slug(card.name)}",
        title=f"{card.name}: what operators do to a text, and their wrappers alone",
        note=(
            "Wrapper alone: neutral sentences, not encoded, in the words that stand "
            "before the code, of those that pass without them; blocked there means that "
            "the wrapper did it. Growth: median length over that of the original. "
            "Decoded: variants whose words the shipped decoders read without being told "
            f"the code; it says what cleaning could do. Exploratory.{note}"
        ),
        collapsed=True,
    )


def repair_sentence(card: AdaptiveCard) -> str:
    """Say what remains of an attack on the repaired defense, and what the repair costs."""
    fixed = card.repaired
    if card.settings.get("repair", True) is False:
        return f"{card.name}: no repair was looked for"
    if fixed is None:
        return f"{card.name}: no cleaning of texts blocks more bypasses than benign texts"
    without = ""
    if card.attacker is not None:
        without = " without the attacker model"
    steps = fixed.name.replace("+", ", ")
    by_seed = ", ".join(percent_text(share) for share in fixed.after.by_seed)
    change = figure_text(fixed.change, Unit.POINTS)
    sentence = (
        f"{card.name}, repaired (asked again about the text cleaned by {steps}) and "
        f"attacked again with the same budget{without}: {figure_text(fixed.after)} of "
        f"{fixed.after.trials:,} attacks get through on average over searches with "
        f"other seeds ({by_seed}), before {rate_text(fixed.before)}; change {change}. "
        f"Of all known bypasses {rate_text(fixed.known)} are blocked, and "
        f"{rate_text(fixed.cost)} of the benign texts let through so far. None of "
        f"{fixed.checked:,} texts blocked before passes"
    )
    if fixed.refused:
        sentence += f"; refused, since they let some in: {', '.join(fixed.refused)}"
    if fixed.after.most == 0:
        sentence += (
            f". None of {fixed.after.seeds} searches found a way; a further one may, and "
            "then for many attacks at once, since they share what they learn"
        )
    if not fixed.is_shown_to_help:
        sentence += "; not shown to help, so it is not offered"
    return sentence


def repair_blocks(card: AdaptiveCard, taken: Sequence[str]) -> list[Block]:
    """Return the table of repairs, and the one that was attacked again as lines to copy."""
    table = table_of(
        card.repairs,
        {
            "Cleaning": lambda row: name(row.name),
            "Bypasses blocked|n": lambda row: with_counts(row.closed),
            "Benign texts lost|n": lambda row: with_counts(row.cost),
            "Attacks let in|n": lambda row: with_counts(row.opened),
        },
        table_id=f"adaptive-repairs-{slug(card.name)}",
        title=f"{card.name}: what cleaning texts first would change",
        collapsed=True,
        note=(
            "At most 200 texts of each kind. Lost: of benign texts that pass, blocked "
            "once cleaned. Let in: of attacks blocked as they are, passed once cleaned; "
            "such a step is refused. What helps by itself is tried together. Rows are "
            "counted on the texts they are chosen on and say nothing of the next attack: "
            "that is what the second attack is for."
        ),
    )
    entry = _repair_entry(card, taken)
    if not entry:
        return [table]
    listing = Listing(
        id=f"adaptive-repair-lines-{slug(card.name)}",
        title=f"{card.name}: the repaired defense, to paste into the configuration",
        lines=("defenses:", *entry),
    )
    return [table, listing]


def repair_fragment(cards: Sequence[AdaptiveCard], taken: Sequence[str]) -> str | None:
    """Write the best repair of each defense as a fragment of a configuration."""
    lines: list[str] = []
    for card in cards:
        lines += _repair_entry(card, taken)
    if lines:
        return "\n".join((*_HEAD, "defenses:", *lines)) + "\n"
    return None


def _repair_entry(card: AdaptiveCard, taken: Sequence[str]) -> list[str]:
    """Write the repaired defense as it stands below `defenses:`, and what it is made of."""
    if card.repaired is None or not card.repaired.is_shown_to_help:
        return []
    from guardmark.canon.steps import CANON_VERSION

    cleaned = repaired_name(card.name, taken, ending="-cleaned")
    entries = {
        cleaned: {
            "type": "canonical",
            "of": card.name,
            "steps": list(card.repaired.steps),
            "canon": CANON_VERSION,
        },
        repaired_name(card.name, taken): {
            "type": "chain",
            "of": [card.name, cleaned],
            "rule": "any",
        },
    }
    return [f"  {line}" for line in (*_remark(f"{repair_sentence(card)}."), *_yaml(entries))]


def repaired_name(defense: str, taken: Sequence[str], *, ending: str = "-repaired") -> str:
    """Return a name for a repaired defense that no other has."""
    wanted = f"{defense[: _LONGEST - len(ending) - 4]}{ending}"
    free, number = wanted, 2
    while free in taken:
        free, number = f"{wanted}-{number}", number + 1
    return free


def _yaml(entry: Mapping[str, Mapping[str, object]]) -> list[str]:
    import yaml  # only a run that was attacked needs it

    text = yaml.safe_dump(entry, sort_keys=False, default_flow_style=None, width=_FLOW)
    return text.splitlines()


def _remark(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]
