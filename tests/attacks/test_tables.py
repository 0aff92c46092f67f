"""The word lists that ship with the package."""

from __future__ import annotations

import re

from guardmark.attacks.operators.lexical import digest_of, plurals, synonyms, verb_forms

TOKEN = re.compile(r"[a-z]+(?:-[a-z]+)*")


def test_synonyms_are_single_small_tokens() -> None:
    """One token for one token: otherwise a variant could not be checked word by word."""
    for word, alternatives in synonyms().items():
        assert TOKEN.fullmatch(word)
        assert alternatives
        assert all(TOKEN.fullmatch(found) for found in alternatives)


def test_no_word_is_its_own_synonym_or_listed_twice() -> None:
    """A word replaced by itself would be a no-op in disguise."""
    for word, alternatives in synonyms().items():
        assert word not in alternatives
        assert len(set(alternatives)) == len(alternatives)


def test_the_map_covers_the_domain() -> None:
    """About 400 words in all their forms, the usual suspects among them."""
    assert len(synonyms()) >= 900
    assert synonyms().keys() >= {"ignore", "previous", "instructions", "reveal", "prompt", "bypass"}


def test_infamous_thesaurus_answers_are_not_in_it() -> None:
    """What a raw thesaurus offers for these words is another request, or none."""
    assert "turkey" not in synonyms()["bomb"]
    assert "slip" not in synonyms()["steal"]
    assert "parole" not in synonyms()["password"]
    assert synonyms()["previous"]


def test_numbers_go_both_ways() -> None:
    """Singular to plural to singular."""
    assert all(plurals()[other] == word for word, other in plurals().items())


def test_verbs_have_four_other_forms() -> None:
    """Third person, past, participle, gerund."""
    assert verb_forms()["write"] == ("writes", "wrote", "written", "writing")
    assert len(verb_forms()) >= 200
    for forms in verb_forms().values():
        assert forms[0].endswith("s")
        assert forms[3].endswith("ing")


def test_the_digest_follows_the_tables() -> None:
    """It goes into the lock; other files, another digest."""
    assert digest_of("synonyms.tsv") != digest_of("plurals.tsv")
    assert digest_of("synonyms.tsv") == digest_of("synonyms.tsv")
