"""Constants of the store that must agree."""

from __future__ import annotations

from guardmark.core.outcome import AnswerMode, ErrorKind, Outcome, ScoreKind, VerdictLabel
from guardmark.core.record import Stage
from guardmark.engine.run_monitor import OUTCOMES
from guardmark.store import schema
from guardmark.store.json_lines import COLUMNS
from guardmark.store.schema import FACET_COLUMNS, definitions


def test_every_word_of_the_vocabulary_has_a_code() -> None:
    """A word without one could not be stored."""
    assert set(schema.STAGES) == set(Stage)
    assert set(schema.SCORE_KINDS) == set(ScoreKind)
    assert set(schema.ERROR_KINDS) == set(ErrorKind)
    assert set(schema.ANSWER_MODES) == set(AnswerMode)
    assert set(schema.OUTCOME_NAMES) == {*Outcome, *VerdictLabel, "answered"}


def test_codes_fit_in_the_bytes_in_which_they_are_read() -> None:
    """Small numbers travel in one integer, a byte each; some with one more for `none`."""
    for names in schema.WORDS.values():
        assert len(names) + 1 < 1 << 7
    flags = [value for name, value in vars(schema).items() if name.startswith("FLAG_")]
    assert len(flags) == 7
    assert sum(flags) == (1 << len(flags)) - 1 < 1 << 8


def test_counts_of_the_store_and_of_the_engine_have_the_same_width() -> None:
    """What is stored is counted in where a run goes on."""
    assert len(schema.OUTCOME_NAMES) == OUTCOMES


def test_facets_are_the_same_in_the_tables_and_in_exports() -> None:
    """In the same order: rows are read by position."""
    kinds = definitions()["kinds"]
    places = [kinds.index(f" {name} TEXT") for name in FACET_COLUMNS]
    assert places == sorted(places)
    assert [name for name in COLUMNS if name in FACET_COLUMNS] == list(FACET_COLUMNS)
