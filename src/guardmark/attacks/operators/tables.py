"""Word tables that ship with the package, read when first needed."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files


@cache
def _read(name: str) -> str:
    return files("guardmark.attacks.operators").joinpath(name).read_text(encoding="utf-8")


def digest_of(*names: str) -> str:
    """Return the SHA-256 over some table files, in hex."""
    return sha256("\0".join(map(_read, names)).encode()).hexdigest()


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Return the reviewed map of words to words that keep a request what it is.

    About 400 words of the domain in all their forms; every alternative is one token and has
    the form (tense, number) of the word it replaces. Do not change the returned value.
    """
    rows = (line.split("\t") for line in _read("synonyms.tsv").splitlines())
    return {word: tuple(alternatives.split()) for word, alternatives in rows}


@cache
def plurals() -> dict[str, str]:
    """Return the nouns whose number may be changed, each way. Do not change it."""
    pairs = [line.split("\t") for line in _read("plurals.tsv").splitlines()]
    return {a: b for one, many in pairs for a, b in ((one, many), (many, one))}


@cache
def verb_forms() -> dict[str, tuple[str, str, str, str]]:
    """Return verbs with their third person, past, participle and gerund. Do not change it."""
    rows = (line.split("\t") for line in _read("verbs.tsv").splitlines())
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}
