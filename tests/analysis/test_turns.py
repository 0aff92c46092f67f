"""Whole conversations, counted by hand: stopped in time, earlier, interrupted, undecided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.analysis.small_runs import Planned, Runs, allow, block, failed

from guardmark.analysis.run import analyse_run
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, Severity
from guardmark.datasets.formats.turns import by_turn
from guardmark.reports.chapters.turns import write_turns
from guardmark.reports.document.blocks import Table

if TYPE_CHECKING:
    from guardmark.analysis.defense.turns import JoinedTurns, SplitPairs, TurnFigures
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


def tables(runs: Runs, *talks: Sample) -> list[str]:
    """The tables of the section on conversations, by their ids."""
    turns = sorted((t for each in talks for t in by_turn(each)), key=lambda t: not t.is_labelled)
    with runs.opened(turns, [Planned(name="g", answers=by_word)], settings=BY_TURN) as reader:
        section = write_turns(analyse_run(reader))
    assert section is not None
    return [block.id for block in section.blocks if isinstance(block, Table)]


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


def test_what_failures_leave_open_has_both_bounds(runs: Runs) -> None:
    """Each turn without a decision once let pass and once blocked; every conversation counts."""
    figures = measured(
        runs,
        talk("open", "lost", "yes"),
        talk("stopped", "lost", "no"),
        talk("open-at-last", "yes", "lost"),
        talk("early", "no", "lost"),
        talk("through", "yes", "yes"),
        talk("calm", "lost", "yes", is_attack=False),
        talk("cut", "lost", "no", is_attack=False),
    )
    assert counts(figures) == [(2, 3), (1, 3), (1, 1)]
    assert figures.undecided == 3
    ends = [
        replace(figures, stopped=e.stopped, before=e.before, interrupted=e.interrupted)
        for e in (figures.fail_open, figures.fail_closed)
    ]
    assert [counts(end) for end in ends] == [[(2, 5), (1, 5), (1, 2)], [(4, 5), (3, 5), (2, 2)]]


def test_where_each_turn_was_decided_nothing_is_said_of_bounds(runs: Runs) -> None:
    """The table of bounds stands where a rate could move."""
    assert tables(runs, talk("a", "yes", "no")) == ["turns"]
    assert tables(runs, talk("a", "lost", "no")) == ["turns", "turns-bounds"]


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


BOTH = {"data": [{"path": "talks.jsonl", "turns": "both"}]}


def by_words(_: int, sample: Sample) -> Decision:
    """Block where a "no" ends the text, or all words together are one; fail at "lost"."""
    said = sample.prompt.text.split()
    if "lost" in said[-1:] or "broken" in said:
        return failed()
    return block() if said[-1] == "no" or said == ["a", "b", "c"] else allow()


def paired(runs: Runs, *talks: Sample, without: str = "", **changes: object) -> JoinedTurns:
    """Measure talks both ways; ids in `without` are not asked about."""
    turns = [t for each in talks for t in by_turn(each, is_joined=True) if t.id != without]
    turns.sort(key=lambda turn: not turn.is_labelled)
    planned = [Planned(name="g", answers=by_words)]
    with runs.opened(turns, planned, settings=BOTH, **changes) as reader:
        analysis = analyse_run(reader)
    document = write_turns(analysis)
    assert document is not None
    named = [block.id for block in document.blocks if isinstance(block, Table)]
    assert (named[0], named[-1]) == ("turns", "split")
    found = analysis.defenses[0].turns
    assert found is not None
    assert found.joined is not None
    return found.joined


def both_ways(pairs: SplitPairs) -> tuple[int, int, int, int]:
    """Hits over turns, hits in one message, pairs and those left open."""
    rates = pairs.conversation, pairs.one_message
    assert rates[0].trials == rates[1].trials == pairs.difference.pairs
    return rates[0].successes, rates[1].successes, rates[0].trials, pairs.undecided


def test_an_attack_split_over_turns_is_held_against_one_message(runs: Runs) -> None:
    """Stopped in one message only, over turns only, both ways, and neither."""
    found = paired(
        runs,
        talk("one-only", "a", "b", "c"),
        talk("turns-only", "no", "yes"),
        talk("both", "yes", "no"),
        talk("neither", "yes", "yes"),
        talk("calm", "yes", "yes", is_attack=False),
        talk("cut", "no", "yes", is_attack=False),
        talk("short", "no"),
    )
    assert both_ways(found.attacks) == (2, 2, 4, 0)
    assert found.attacks.difference.value == 0.0
    assert (found.attacks.difference.first_only, found.attacks.difference.second_only) == (1, 1)
    assert both_ways(found.benign) == (1, 0, 2, 0)
    assert found.benign.difference.value == 0.5
    assert (found.single_turn, found.unfinished) == (1, 0)


def test_a_pair_with_a_failure_is_neither_won_nor_lost(runs: Runs) -> None:
    """A failed turn settles nothing unless another one blocks; a failed message nothing at all."""
    found = paired(
        runs,
        talk("open", "lost", "yes"),
        talk("settled", "lost", "no"),
        talk("broken", "yes", "broken yes"),
    )
    assert both_ways(found.attacks) == (1, 1, 1, 2)
    # Open: its message was let through, its turns may have been blocked. Broken: nothing is known.
    assert (found.attacks.lowest, found.attacks.highest) == (-1 / 3, 2 / 3)


def test_a_pair_of_which_something_was_not_asked_is_counted_apart(runs: Runs) -> None:
    """The message of all turns, or one of them, may be missing after a kill or a limit."""
    for missing in ("a@joined", "a@2"):
        found = paired(runs, talk("a", "no", "no"), talk("b", "yes", "no"), without=missing)
        assert both_ways(found.attacks) == (1, 1, 1, 0)
        assert found.unfinished == 1


def test_data_of_single_turns_have_no_pair_and_no_difference(runs: Runs) -> None:
    """Undefined is not zero."""
    found = paired(runs, talk("a", "no"), talk("b", "yes", is_attack=False))
    assert found.attacks.difference.value is None
    assert found.attacks.conversation.value is None
    assert found.single_turn == 2


def test_one_giant_group_has_a_difference_and_no_limits(runs: Runs) -> None:
    """Conversations of one origin are not independent."""
    talks = [replace(talk(f"t{n}", "a", "b", "c"), group="family") for n in range(9)]
    found = paired(runs, *talks)
    assert found.attacks.difference.value == -1.0
    assert (found.attacks.difference.low, found.attacks.difference.high) == (None, None)


def test_repeats_pair_with_their_own(runs: Runs) -> None:
    """Each repeat of a conversation is held against the same repeat of its message."""
    found = paired(runs, talk("a", "no", "yes"), talk("b", "yes", "yes"), repeats=2)
    assert both_ways(found.attacks) == (2, 0, 4, 0)
    assert found.attacks.difference.groups == 2
