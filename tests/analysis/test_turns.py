"""Whole conversations, counted by hand: stopped in time, earlier, interrupted, undecided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.analysis.small_runs import Planned, Runs, allow, block, failed

from guardmark.analysis.run import analyse_run
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, Severity
from guardmark.datasets.formats.turns import by_turn
from guardmark.reports.chapters.turns import write_turns

if TYPE_CHECKING:
    from guardmark.analysis.defense.turns import TurnFigures
    from guardmark.core.outcome import Decision

BY_TURN = {"data": [{"path": "talks.jsonl", "turns": "each"}]}


def talk(name: str, *said: str, is_attack: bool = True) -> Sample:
    """A conversation in which a user says so many things."""
    messages = tuple(Message(role=Role.USER, content=text) for text in said)
    return Sample(
        id=name,
        prompt=Prompt(messages=messages),
        label=Label.ATTACK if is_attack else Label.BENIGN,
        severity=Severity.LOW if is_attack else None,
        category="extraction" if is_attack else "books",
    )


def by_word(_: int, sample: Sample) -> Decision:
    """Do what the last word of the user says."""
    return {"no": block(), "lost": failed()}.get(sample.prompt.text, allow())


def measured(runs: Runs, *talks: Sample, without: str = "", **changes: object) -> TurnFigures:
    """Measure a defense that does what the talks say; ids in `without` are not asked about."""
    turns = [turn for each in talks for turn in by_turn(each) if turn.id != without]
    turns.sort(key=lambda turn: not turn.is_labelled)
    planned = [Planned(name="g", answers=by_word)]
    with runs.opened(turns, planned, settings=BY_TURN, **changes) as reader:
        analysis = analyse_run(reader)
    assert write_turns(analysis) is not None
    found = analysis.defenses[0].turns
    assert found is not None
    return found


def counts(figures: TurnFigures) -> list[tuple[int, int]]:
    """Hits and trials of stopped, before and interrupted."""
    rates = (figures.stopped, figures.before, figures.interrupted)
    return [(rate.successes, rate.trials) for rate in rates]


def test_a_conversation_counts_once_by_its_first_block(runs: Runs) -> None:
    """Stopped early, in time, and not at all; benign ones with and without a block."""
    figures = measured(
        runs,
        talk("early", "no", "yes", "no"),
        talk("in-time", "yes", "yes", "no"),
        talk("through", "yes", "yes", "yes"),
        talk("calm", "yes", "yes", is_attack=False),
        talk("cut", "yes", "no", "yes", is_attack=False),
        talk("cut-at-last", "yes", "no", is_attack=False),
    )
    assert counts(figures) == [(2, 3), (1, 3), (2, 3)]
    assert (figures.undecided, figures.unfinished) == (0, 0)


def test_a_failure_settles_nothing_that_was_not_answered(runs: Runs) -> None:
    """A later block stops the conversation all the same; whether it was early may stay open."""
    figures = measured(
        runs,
        talk("open", "lost", "yes"),
        talk("stopped", "lost", "no"),
        talk("early", "no", "lost"),
        talk("calm", "lost", "yes", is_attack=False),
        talk("cut", "lost", "no", is_attack=False),
    )
    assert counts(figures) == [(2, 2), (1, 1), (1, 1)]
    assert figures.undecided == 2
    assert figures.first_turn[0].trials == 1  # of "stopped" the first turn is not known


def test_a_conversation_of_which_a_turn_was_not_asked_counts_nowhere(runs: Runs) -> None:
    """A part of the data cannot say what became of the whole."""
    figures = measured(runs, talk("a", "no", "no"), talk("b", "yes", "no"), without="a@1")
    assert counts(figures) == [(1, 1), (0, 1), (0, 0)]
    assert figures.unfinished == 1
    assert figures.interrupted.value is None


def test_a_run_that_asks_about_the_last_turn_says_nothing_of_turns(runs: Runs) -> None:
    """The section stands where somebody asked for it."""
    with runs.opened([talk("a", "no")], [Planned(name="g", answers=by_word)]) as reader:
        analysis = analyse_run(reader)
    assert analysis.defenses[0].turns is None
    assert write_turns(analysis) is None
