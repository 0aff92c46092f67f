"""F12: other words for the same, from lists that a person has read."""

from __future__ import annotations

import re
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from guardmark.attacks.contract import LegitUse, Operator, Parameter, Slot, Tier, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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


# A word stands alone: parts of names such as reset_token, of paths and of addresses are no words.
_WORD = re.compile(r"(?<![\w./@\\-])([A-Za-z]+(?:-[A-Za-z]+)*)(?![\w@/\\-]|\.\w)")

_SPELLINGS = (
    "analyse analyze, analysed analyzed, artefact artifact, authorise authorize, "
    "authorised authorized, behaviour behavior, behaviours behaviors, cancelled canceled, "
    "catalogue catalog, centre center, centres centers, cheque check, colour color, "
    "colours colors, counsellor counselor, customise customize, defence defense, "
    "defences defenses, dialogue dialog, emphasise emphasize, favour favor, favourite favorite, "
    "fulfil fulfill, grey gray, harbour harbor, honour honor, humour humor, initialise initialize, "
    "judgement judgment, labelled labeled, labour labor, licence license, litre liter, "
    "metre meter, minimise minimize, modelling modeling, neighbour neighbor, offence offense, "
    "optimise optimize, organisation organization, organise organize, paralyse paralyze, "
    "prioritise prioritize, programme program, realise realize, recognise recognize, "
    "rumour rumor, sceptical skeptical, summarise summarize, summarised summarized, "
    "theatre theater, travelling traveling, unauthorised unauthorized, utilise utilize, "
    "utilising utilizing, vapour vapor, visualise visualize"
)
_CONTRACTIONS = (
    "do not|don't, does not|doesn't, did not|didn't, is not|isn't, are not|aren't, "
    "was not|wasn't, were not|weren't, will not|won't, would not|wouldn't, should not|shouldn't, "
    "could not|couldn't, cannot|can't, must not|mustn't, has not|hasn't, have not|haven't, "
    "had not|hadn't, I am|I'm, you are|you're, we are|we're, they are|they're, it is|it's, "
    "that is|that's, what is|what's, I will|I'll, you will|you'll, I have|I've, you have|you've, "
    "let us|let's"
)


def _pairs(listed: str, separator: str) -> dict[str, str]:
    pairs = (pair.strip().split(separator) for pair in listed.split(","))
    return {long: short for long, short in pairs}  # noqa: C416 - names say which is which


_BRITISH = _pairs(_SPELLINGS, " ")
_OTHER_SPELLING = {a: b for one, two in _BRITISH.items() for a, b in ((one, two), (two, one))}
_CONTRACTED = {long.lower(): short.lower() for long, short in _pairs(_CONTRACTIONS, "|").items()}
_EXPANDED = {short: long for long, short in _CONTRACTED.items()}
_LONG = re.compile(rf"\b(?:{'|'.join(map(re.escape, _CONTRACTED))})\b", re.IGNORECASE)
_SHORT = re.compile(
    rf"\b(?:{'|'.join(re.escape(short) for short in _EXPANDED)})\b".replace("'", "['\u2019]"),
    re.IGNORECASE,
)


def cased_like(word: str, model: str) -> str:
    """Give a word the capitals of the word it replaces."""
    if model.islower():
        return word
    if model.isupper() and len(model) > 1:
        return word.upper()
    return word[0].upper() + word[1:] if model[0].isupper() else word


def swap_listed(text: str, use: Use, listed: Mapping[str, tuple[str, ...]]) -> str:
    """Replace listed words with probability p, by a drawn alternative."""
    bound = use.threshold("p")
    pieces = list(_pieces(text))
    draws = use.draws(len(pieces))
    alternatives = map(listed.get, map(str.lower, pieces[1::2]))
    for index, forms in zip(range(1, len(pieces), 2), alternatives, strict=True):
        if forms is not None and draws[index] < bound:
            choice = forms[draws[index - 1] % len(forms)]
            pieces[index] = cased_like(choice, pieces[index])
    return "".join(pieces)


@lru_cache(maxsize=256)
def _pieces(text: str) -> tuple[str, ...]:
    """Cut a text into words, at odd places, and what stands between; each is asked for often."""
    return tuple(_WORD.split(text))


def _differ_by_list(
    original: str, variant: str, listed: Callable[[], Mapping[str, tuple[str, ...]]]
) -> bool:
    """Say whether two texts are equal but for listed words in the same places."""
    before, after = _pieces(original), _WORD.split(variant)
    if len(before) != len(after) or list(before[::2]) != after[::2]:
        return False
    table = listed()
    words = zip(before[1::2], after[1::2], strict=True)
    changed = [(a, b) for a, b in words if a != b]
    return all(b.lower() in table.get(a.lower(), ()) for a, b in changed)


@cache
def _numbers() -> Mapping[str, tuple[str, ...]]:
    return {word: (other,) for word, other in plurals().items()}


@cache
def _spellings() -> Mapping[str, tuple[str, ...]]:
    return {word: (other,) for word, other in _OTHER_SPELLING.items()}


_lexical = partial(
    Operator,
    family="F12",
    slot=Slot.LEXICAL,
    tier=Tier.V3_TABLE,
    legit_use=LegitUse.COMMON,
    local=True,
)


def _listed(
    name: str, summary: str, listed: Callable[[], Mapping[str, tuple[str, ...]]], *shares: float
) -> Operator:
    return _lexical(
        name=name,
        seeded=True,
        parameters=(Parameter(name="p", values=shares),),
        summary=summary,
        rewrite=lambda text, use: swap_listed(text, use, listed()),
        check=partial(_differ_by_list, listed=listed),
        table_digest=partial(digest_of, "synonyms.tsv", "plurals.tsv"),
    )


def _change_contractions(text: str, use: Use) -> str:
    if use.word("to") == "short":
        return _LONG.sub(lambda f: cased_like(_CONTRACTED[f[0].lower()], f[0]), text)
    return _expanded(text)


def _expanded(text: str) -> str:
    if "'" not in text and "\u2019" not in text:
        return text
    return _SHORT.sub(
        lambda f: cased_like(_EXPANDED[f[0].lower().replace("\u2019", "'")], f[0]), text
    )


_FILLERS = "please, kindly, really, very, actually, basically, literally, if you can, if possible"
_FILLER = re.compile(
    rf"(?:^|(?<=\s))(?<!not )(?<!n't )(?:{'|'.join(_FILLERS.split(', '))})\s+(?=\w)"
    r"|(?<!not)\s+(?:please|if you can|if possible)(?=[.!?]?$)",
    re.IGNORECASE,
)
_PHRASES = _pairs(
    "system prompt|initial instructions, previous instructions|instructions from before, "
    "previous rules|rules from before, tell me|let me know, how do i|what are the steps to, "
    "how can i|what is a way to, give me|hand me, do not tell|keep from telling, "
    "in order to|so as to, make sure|see to it, get rid of|do away with, find out|work out, "
    "without permission|with no permission, without being caught|with nobody noticing, "
    "from now on|starting now, pretend to be|act as, step by step|one step after another, "
    "as soon as possible|at the earliest moment, instead of|in place of, a lot of|plenty of, "
    "as if|as though, at once|immediately, carry out|perform, refer to|mention",
    "|",
)
_PHRASE = re.compile(rf"\b(?:{'|'.join(map(re.escape, _PHRASES))})\b", re.IGNORECASE)
_OTHER_PHRASE = {other: phrase for phrase, other in _PHRASES.items()}
_REPHRASED = re.compile(rf"\b(?:{'|'.join(map(re.escape, _OTHER_PHRASE))})\b", re.IGNORECASE)


def _shortened(text: str) -> str:
    """Leave out listed words that ask for nothing."""
    return _FILLER.sub("", text)


def _rephrased(text: str) -> str:
    return _PHRASE.sub(lambda f: cased_like(_PHRASES[f[0].lower()], f[0]), text)


def _plainly(text: str) -> str:
    """Write every listed phrase in its first form."""
    return _REPHRASED.sub(lambda match: _OTHER_PHRASE[match[0].lower()], text.lower())


OPERATORS = (
    _lexical(
        name="shortening",
        summary="Listed words of courtesy and emphasis left out.",
        rewrite=lambda text, _: _shortened(text),
        check=lambda original, variant: _shortened(original) == _shortened(variant),
    ),
    _lexical(
        name="paraphrase",
        summary="Listed phrases by others that say the same.",
        rewrite=lambda text, _: _rephrased(text),
        check=lambda original, variant: _plainly(original) == _plainly(variant),
    ),
    _listed("synonym", "Words by reviewed synonyms of the domain.", synonyms, 1.0, 0.5),
    _listed("spelling_variant", "British spelling to American and back.", _spellings, 1.0),
    _lexical(
        name="contraction",
        parameters=(Parameter(name="to", values=("short", "long")),),
        summary="Do not to don't, or back.",
        rewrite=_change_contractions,
        check=lambda original, variant: _expanded(original).lower() == _expanded(variant).lower(),
    ),
    _listed("noun_number", "Listed nouns from singular to plural and back.", _numbers, 1.0, 0.5),
)
"""The operators of F12."""
