"""Guards that rewrite: what survives, what is changed for nothing, and what nobody can know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.analysis.small_runs import Planned, Runs, attack, benign, block

from guardmark.analysis.compare.answer import Keeping, judge_all
from guardmark.analysis.compare.verdicts import Reliance
from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import RelianceLimits
from guardmark.core.outcome import Decision, Outcome
from guardmark.core.sample import MarkedSpan, Prompt, Sample
from guardmark.reports.chapters.masking import write_masking

NAME, MAIL = "Ada Quillford", "ada@example.org"


def marked(number: int, **changes: object) -> Sample:
    """A text with a name and an address, both marked."""
    text = f"Please write to {NAME} at {MAIL} about order {number}."
    spans = []
    for kind, value in (("person", NAME), ("email", MAIL)):
        start = text.index(value)
        spans.append(MarkedSpan(start, start + len(value), kind))
    return attack(number, prompt=Prompt.of_text(text), spans=tuple(spans), **changes)


def plain(number: int) -> Sample:
    """A look-alike: five words, none of which has to change."""
    return benign(number, prompt=Prompt.of_text(f"part PX about order {number}"))


def rewrite(text: str) -> Decision:
    """Another text goes on."""
    return Decision(outcome=Outcome.ALLOW, text=text)


def masked_mail(number: int, sample: Sample) -> Decision:
    """Mask addresses, leave names; change one look-alike in four for nothing."""
    text = sample.prompt.text
    if sample.is_attack:
        return rewrite(text.replace(MAIL, "<EMAIL>"))
    return (
        rewrite(text.replace("PX", "<CODE>"))
        if number % 4 == 0
        else Decision(outcome=Outcome.ALLOW)
    )


def analysed(runs: Runs, answers: Callable[[int, Sample], Decision]) -> DefenseAnalysis:
    """What a report says of one guard on 20 marked texts and 20 look-alikes."""
    samples = [*(marked(n) for n in range(20)), *(plain(n) for n in range(20))]
    planned = Planned(name="masker", answers=answers)
    with runs.opened(samples, [planned]) as reader:
        (defense,) = analyse_run(reader).defenses
    return defense


def test_what_went_on_is_counted_by_kind(runs: Runs) -> None:
    """Every name survived, no address did; one text in which all went stands for its group."""
    masking = analysed(runs, masked_mail).masking
    assert masking is not None
    leaks = {each.kind: (each.leaked.successes, each.leaked.trials) for each in masking.kinds}
    assert leaks == {"email": (0, 20), "person": (20, 20)}
    assert masking.leaked is not None
    assert (masking.leaked.successes, masking.leaked.trials) == (20, 40)
    assert masking.leaked.groups == 20


def test_words_that_need_not_change_are_counted_apart(runs: Runs) -> None:
    """Seven free words in a marked text, five in a look-alike; five look-alikes lost one."""
    masking = analysed(runs, masked_mail).masking
    assert masking is not None
    changed = masking.changed_words
    assert (changed.successes, changed.trials) == (5, 20 * 7 + 20 * 5)
    assert (masking.rewritten_benign.successes, masking.rewritten_benign.trials) == (5, 20)
    rewritten = masking.rewritten_attacks
    assert (rewritten.successes, rewritten.trials) == (20, 20)


def test_a_rewritten_attack_is_neither_let_through_nor_blocked(runs: Runs) -> None:
    """Its rate is undefined, not 100 %, and both ends say how far it could lie."""
    card = analysed(runs, masked_mail).card
    assert card.confusion.attacks.rewritten == 20
    assert card.attack_success_rate.trials == 0
    assert card.attack_success_rate.value is None
    assert card.fail_closed.attack_success_rate.value == 0.0
    assert card.fail_open.attack_success_rate.value == 1.0
    assert card.answered_attacks.value == 1.0


def test_no_verdict_rests_on_what_rewriting_may_do(runs: Runs) -> None:
    """Not `Do not rely` for blocking nothing, not `Rely` for letting nothing through as it was."""
    defense = analysed(runs, masked_mail)
    (judged,) = judge_all([defense], RelianceLimits())
    assert judged.reliance is Reliance.NO_DATA
    attacks = judged.held[0]
    assert attacks.keeping is Keeping.OPEN
    assert attacks.needed is None


def test_a_blocked_text_sends_nothing_on(runs: Runs) -> None:
    """A block by a guard that also gives a text is a block, and nothing of it leaks."""

    def blocks_half(number: int, sample: Sample) -> Decision:
        if sample.is_attack and number % 2:
            return replace(block(), text="whatever")
        return masked_mail(number, sample)

    defense = analysed(runs, blocks_half)
    assert defense.card.confusion.attacks.block == 10
    assert defense.masking is not None
    leaks = {
        each.kind: (each.leaked.successes, each.leaked.trials) for each in defense.masking.kinds
    }
    assert leaks == {"email": (0, 20), "person": (10, 20)}


def test_a_guard_that_rewrites_nothing_has_no_such_figures(runs: Runs) -> None:
    """Marks in the data alone measure no mask."""
    assert analysed(runs, lambda *_: Decision(outcome=Outcome.ALLOW)).masking is None


@pytest.mark.parametrize("text", ["", "ADA   QUILLFORD", "Ada\nQuillford"])
def test_capitals_and_spacing_hide_nothing(runs: Runs, text: str) -> None:
    """A name in other capitals, or over two lines, is still there; an empty text holds nothing."""
    masking = analysed(runs, lambda *_: rewrite(text)).masking
    assert masking is not None
    leaks = {each.kind: each.leaked.successes for each in masking.kinds}
    assert leaks == {"email": 0, "person": 20 if text else 0}


def test_the_report_has_a_section_on_it(runs: Runs) -> None:
    """And only where a guard rewrote."""
    samples = [*(marked(n) for n in range(4)), *(plain(n) for n in range(4))]
    with runs.opened(samples, [Planned(name="masker", answers=masked_mail)]) as reader:
        section = write_masking(analyse_run(reader))
    assert section is not None
    assert [table.id for table in section.blocks if hasattr(table, "columns")] == [
        "masking",
        "masking-kinds",
    ]
