"""F12: other words for the same, from lists that a person has read."""

from __future__ import annotations

import re
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from guardmark.attacks.tables import OperatorRules, digest_of, listed_pairs, listed_texts, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guardmark.attacks.contract import Use


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Return the reviewed map of words to words that keep a request what it is.

    About 400 words of the domain in all their forms; every alternative is one token and has
    the form (tense, number) of the word it replaces. Do not change the returned value.
    """
    listed = {}
    for line in read_text("operators/synonyms.tsv").splitlines():
        word, alternatives = line.split("\t")
        listed[word] = tuple(alternatives.split())
    return listed


@cache
def plurals() -> dict[str, str]:
    """Return the nouns whose number may be changed, each way. Do not change it."""
    others = {}
    for line in read_text("operators/plurals.tsv").splitlines():
        one, many = line.split("\t")
        others[one] = many
        others[many] = one
    return others


@cache
def verb_forms() -> dict[str, tuple[str, str, str, str]]:
    """Return verbs with their third person, past, participle and gerund. Do not change it."""
    forms = {}
    for line in read_text("operators/verbs.tsv").splitlines():
        verb, third, past, participle, gerund = line.split("\t")
        forms[verb] = (third, past, participle, gerund)
    return forms


# A word stands alone: parts of names such as reset_token, of paths and of addresses are no words.
_WORD = re.compile(r"(?<![\w./@\\-])([A-Za-z]+(?:-[A-Za-z]+)*)(?![\w@/\\-]|\.\w)")


def cased_like(word: str, model: str) -> str:
    """Give a word the capitals of the word it replaces."""
    if model.islower():
        return word
    if model.isupper() and len(model) > 1:
        return word.upper()
    if model[0].isupper():
        return word[0].upper() + word[1:]
    return word


def swap_listed(text: str, use: Use, listed: Mapping[str, tuple[str, ...]]) -> str:
    """Replace listed words with probability p, by a drawn alternative."""
    before, words = _cut(text)
    if listed.keys().isdisjoint(words):
        return text
    bound = use.threshold("p")
    draws = use.draws(len(before))
    pieces = list(before)
    for index, forms in zip(range(1, len(pieces), 2), map(listed.get, words), strict=True):
        if forms is not None and draws[index] < bound:
            choice = forms[draws[index - 1] % len(forms)]
            pieces[index] = cased_like(choice, pieces[index])
    return "".join(pieces)


@lru_cache(maxsize=256)  # each text is asked for often
def _cut(text: str) -> tuple[list[str], list[str]]:
    """Cut into words, at odd places, and what stands between; and the words in small letters."""
    pieces = _WORD.split(text)
    return pieces, list(map(str.lower, pieces[1::2]))


def _differ_by_list(
    original: str, variant: str, listed: Callable[[], Mapping[str, tuple[str, ...]]]
) -> bool:
    """Say whether two texts are equal but for listed words in the same places."""
    before, _ = _cut(original)
    after = _WORD.split(variant)
    if len(before) != len(after) or before[::2] != after[::2]:
        return False
    table = listed()
    for word, other in zip(before[1::2], after[1::2], strict=True):
        if word != other and other.lower() not in table.get(word.lower(), ()):
            return False
    return True


@cache
def _numbers() -> Mapping[str, tuple[str, ...]]:
    return {word: (other,) for word, other in plurals().items()}


@cache
def _spellings() -> Mapping[str, tuple[str, ...]]:
    spellings = {}
    for one, other in listed_pairs("spellings").items():
        spellings[one] = (other,)
        spellings[other] = (one,)
    return spellings


def _listed(listed: Callable[[], Mapping[str, tuple[str, ...]]]) -> OperatorRules:
    return OperatorRules(
        rewrite=lambda text, use: swap_listed(text, use, listed()),
        check=partial(_differ_by_list, listed=listed),
        table_digest=partial(digest_of, "synonyms.tsv", "plurals.tsv"),
    )


class _Phrases(NamedTuple):
    """Listed phrases with what stands for each, and what finds them in either case."""

    others: dict[str, str]
    finder: re.Pattern[str]

    def exchanged(self, text: str) -> str:
        """Write the other phrase in place of each."""
        return self.finder.sub(self._other, text)

    def _other(self, found: re.Match[str]) -> str:
        phrase = found[0].lower().replace("\u2019", "'")
        if phrase not in self.others:  # with a long s, which is found as an s and is none
            return found[0]
        return cased_like(self.others[phrase], found[0])


@cache
def _phrases(key: str, *, is_back: bool = False) -> _Phrases:
    others = {}
    for one, other in listed_pairs(key).items():
        if is_back:
            others[other.lower()] = one.lower()
        else:
            others[one.lower()] = other.lower()
    words = "|".join(map(re.escape, others)).replace("'", "['\u2019]")
    return _Phrases(others, re.compile(rf"\b(?:{words})\b", re.IGNORECASE))


def _change_contractions(text: str, use: Use) -> str:
    if use.word("to") == "short":
        return _phrases("contractions").exchanged(text)
    return _expanded(text)


def _expanded(text: str) -> str:
    if "'" not in text and "\u2019" not in text:
        return text
    return _phrases("contractions", is_back=True).exchanged(text)


@cache
def _fillers() -> re.Pattern[str]:
    words = "|".join(listed_texts("left_out"))
    return re.compile(
        rf"(?:^|(?<=\s))(?<!not )(?<!n't )(?:{words})\s+(?=\w)"
        r"|(?<!not)\s+(?:please|if you can|if possible)(?=[.!?]?$)",
        re.IGNORECASE,
    )


def _shortened(text: str) -> str:
    """Leave out listed words that ask for nothing."""
    return _fillers().sub("", text)


def _plainly(text: str) -> str:
    """Write every listed phrase in its first form."""
    return _phrases("phrases", is_back=True).exchanged(text.lower())


RULES = {
    "shortening": OperatorRules(
        rewrite=lambda text, _: _shortened(text),
        check=lambda original, variant: _shortened(original) == _shortened(variant),
    ),
    "paraphrase": OperatorRules(
        rewrite=lambda text, _: _phrases("phrases").exchanged(text),
        check=lambda original, variant: _plainly(original) == _plainly(variant),
    ),
    "synonym": _listed(synonyms),
    "spelling_variant": _listed(_spellings),
    "contraction": OperatorRules(
        rewrite=_change_contractions,
        check=lambda original, variant: _expanded(original).lower() == _expanded(variant).lower(),
    ),
    "noun_number": _listed(_numbers),
}
"""What the operators of F12 do."""
