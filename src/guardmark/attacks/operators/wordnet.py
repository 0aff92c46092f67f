"""Synonyms from a WordNet folder that the user has: opt-in, never part of the battery.

A raw thesaurus is no safe source of synonyms, so only what is least risky is taken: words that
have counted senses in one part of speech alone, their first two senses, single-word members.
Even so nothing here proves that a request stayed the same: variants are V3, given a judge.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier
from guardmark.attacks.operators.lexical import swap_listed
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
SENSES = 2
"""How many of a word's senses, most frequent first, are taken."""

_SINGLE = re.compile(r"[a-z]+(?:-[a-z]+)*")
_MARKER = re.compile(r"\([a-z]+\)$")  # position of an adjective, as in galore(ip)


def read_wordnet(folder: Path) -> dict[str, tuple[str, ...]]:
    """Read the synonyms of a WordNet 3 database."""
    senses: dict[str, list[tuple[str, list[int]]]] = {}
    for part in PARTS_OF_SPEECH:
        for word, offsets in _tagged_senses(folder, part):
            senses.setdefault(word, []).append((part, offsets))
    data = {part: _read(folder, f"data.{part}") for part in PARTS_OF_SPEECH}
    table: dict[str, tuple[str, ...]] = {}
    for word, readings in senses.items():
        if len(readings) != 1:  # several parts of speech: which one is meant cannot be told
            continue
        part, offsets = readings[0]
        alternatives: dict[str, None] = {}  # in order, each once
        for offset in offsets:
            alternatives.update(dict.fromkeys(_members(data[part], offset, f"data.{part}")))
        alternatives.pop(word, None)
        if alternatives:
            table[word] = tuple(alternatives)
    return table


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{folder} is not a WordNet database: {name} cannot be read ({error.strerror}).\n"
            "Name the folder that holds index.noun, data.noun and the other six files."
        ) from error


def _tagged_senses(folder: Path, part: str) -> Iterator[tuple[str, list[int]]]:
    """Yield single words that occur in counted texts, with places of their first senses."""
    name = f"index.{part}"
    for line in _read(folder, name).decode("ascii", "replace").splitlines():
        if line.startswith(" ") or not line.strip():  # the licence stands at the head
            continue
        fields = line.split()
        try:
            pointers = int(fields[3])
            counted = int(fields[5 + pointers])
            offsets = [int(offset) for offset in fields[6 + pointers :]]
        except (IndexError, ValueError):
            raise ConfigError(
                f"{folder / name} is not in WordNet's format: {line[:60]!r}."
            ) from None
        if counted > 0 and _SINGLE.fullmatch(fields[0]):
            yield fields[0], offsets[: min(SENSES, counted)]


def _members(data: bytes, offset: int, name: str) -> Iterator[str]:
    """Yield the single-word members of the synset at a byte offset."""
    end = data.find(b"\n", offset)
    if end < 0:
        end = len(data)
    fields = data[offset:end].decode("ascii", "replace").split()
    try:
        stands_at, count = int(fields[0]), int(fields[3], 16)
    except (IndexError, ValueError):
        stands_at, count = -1, 0
    if stands_at != offset:
        raise ConfigError(f"{name} holds no synset at {offset}: index and data differ.")
    words = fields[4 : 4 + 2 * count : 2]
    for word in words:
        bare = _MARKER.sub("", word)
        if _SINGLE.fullmatch(bare):
            yield bare


def wordnet_operator(folder: Path) -> Operator:
    """Return an operator that replaces words by WordNet's synonyms."""
    table = read_wordnet(folder)
    digest = sha256(repr(sorted(table.items())).encode()).hexdigest()

    return Operator(
        name="wordnet_synonym",
        family="F12",
        slot=Slot.LEXICAL,
        tier=Tier.V3,
        legit_use=LegitUse.COMMON,
        seeded=True,
        local=True,
        parameters=(Parameter(name="p", values=(0.5, 1.0)),),
        summary="Words by synonyms of a WordNet database that the user has.",
        rewrite=lambda text, use: swap_listed(text, use, table),
        table_digest=lambda: digest,
    )
