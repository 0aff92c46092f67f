"""The word lists that ship with the package."""

from __future__ import annotations

import re

import pytest

from guardmark.attacks.application import apply
from guardmark.attacks.catalogue import arm, operators
from guardmark.attacks.operators.lexical import plurals, synonyms, verb_forms
from guardmark.attacks.tables import (
    TEXTS,
    OperatorRules,
    declared,
    digest_of,
    listed_pairs,
    listed_texts,
    read_table,
)

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


def test_every_list_holds_what_it_is_read_as() -> None:
    """Texts, texts by a name, or by a name what stands before and behind a text."""
    for key, listed in read_table(TEXTS).items():
        if isinstance(listed, list):
            assert listed_texts(key)
            assert {type(each) for each in listed_texts(key)} == {str}
        elif {type(each) for each in listed.values()} != {str}:
            assert all(len(each) == 2 and {*map(type, each)} == {str} for each in listed.values())
        else:
            assert listed_pairs(key) == listed


def test_an_operator_is_declared_once_and_does_something() -> None:
    """A declaration without a function, or a function without a declaration, is an error."""
    nothing = OperatorRules(rewrite=lambda text, _: text)
    with pytest.raises(KeyError, match="case_upper"):
        declared({})
    known = {each.name: nothing for each in operators()}
    with pytest.raises(ValueError, match="does not declare upside_up"):
        declared({**known, "upside_up": nothing})


def test_a_long_s_is_found_as_an_s_and_left_alone() -> None:
    """Matching in either case finds it; no list holds such a phrase."""
    assert not apply(arm("paraphrase"), "He acts a\u017f if.", seed=b"").is_variant
    assert not apply(arm("contraction", to="long"), "Let'\u017f go.", seed=b"").is_variant


def test_the_digest_follows_the_tables() -> None:
    """It goes into the lock; other files, another digest."""
    assert digest_of("synonyms.tsv") != digest_of("plurals.tsv")
    assert digest_of("synonyms.tsv") == digest_of("synonyms.tsv")
