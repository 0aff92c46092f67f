"""Which one of several defenses to take: the first thing a report says to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.analysis.small_runs import Answers, Runs, allow, attack, benign, block
from tests.reports.small_reports import bare_analysis

from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Bullets, Document, Table

SAMPLES = [*(attack(n) for n in range(100)), *(benign(n) for n in range(100))]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A writer of small runs."""
    return Runs(folder=tmp_path)


def blocking(attacks: int, benign_of_100: int = 0) -> Answers:
    """Blocks so many of 100 attacks and of 100 benign samples, the first ones."""

    def answer(position: int, sample: Sample) -> Decision:
        return (
            block()
            if position % 100 < (attacks if sample.is_attack else benign_of_100)
            else allow()
        )

    return answer


def items(document: Document) -> tuple[str, ...]:
    """What the report says to do, in order; folded items last."""
    (section,) = (each for each in document.sections if each.id == "recommendations")
    lines = [line for block in section.blocks if isinstance(block, Bullets) for line in block.lines]
    tables = [block for block in section.blocks if isinstance(block, Table)]
    return (*lines, *(row.cells[0].text for table in tables for row in table.rows))


def advised(runs: Runs, *answers: Answers) -> tuple[str, ...]:
    """What is said to do of these defenses."""
    return items(build_document(bare_analysis(runs, *answers, samples=SAMPLES)))


def first_line(runs: Runs, answers: Answers, samples: list[Sample] = SAMPLES) -> str:
    """What heads the report."""
    return build_document(bare_analysis(runs, answers, samples=samples)).answer[0]


@pytest.mark.parametrize("attacks", [0, 10, 20])
def test_one_that_blocks_no_more_attacks_than_benign_is_no_better_than_nothing(
    runs: Runs, attacks: int
) -> None:
    """Equal shares are not *worse* than nothing; 80 against 20 are neither."""
    more = ", and it is not shown to be better than nothing."
    assert first_line(runs, blocking(attacks, 20)).endswith(more)
    assert not first_line(runs, blocking(80, 20)).endswith(more)
    assert first_line(runs, blocking(25, 20)).endswith(more)


def test_a_limit_is_kept_by_the_whole_interval(runs: Runs) -> None:
    """One of two attacks decides nothing, and neither does 1 % of 100 for a limit of 5 %."""
    said = first_line(runs, blocking(1), [attack(0), attack(1), benign(2)])
    assert said == (
        "one is not shown to pass: it leaves open the limits for attacks (50.0 %, at most 10 %) "
        "and false alarms (0.0 %, at most 5 %)."
    )
    assert first_line(runs, blocking(99, 1)) == (
        "one is not shown to pass: it keeps the limit for attacks (1.0 %, at most 10 %) "
        "and leaves open the one for false alarms (1.0 %, at most 5 %)."
    )


def test_one_that_beats_the_others_is_named_alone(runs: Runs) -> None:
    """And what concerns it comes before what concerns the others."""
    first, *others = advised(runs, blocking(10), blocking(80))
    assert first.startswith("Which one? Lowest ASR: two, 20.0 % [")
    assert first.endswith(
        "Not offered, as by the points another is lower on one rate and no higher on the other: "
        "one (two is)."
    )
    alone, *_ = advised(runs, blocking(50, 40), blocking(80, 2))
    assert alone.endswith("Every other one is shown to be worse, or not shown to beat chance.")
    named = [line.partition(":")[0] for line in others if "collect more" not in line]
    assert named.index("two") < named.index("one")


def test_a_tie_says_how_many_groups_would_tell(runs: Runs) -> None:
    """More than there are; the smaller the difference, the more."""
    needed = []
    for attacks in (78, 75):
        first, *_ = advised(runs, blocking(attacks), blocking(80))
        assert "two, 20.0 %" in first
        assert "Not told apart from it there: one." in first
        (count,) = re.findall(r"About ([\d,]+) groups of attacks would tell one apart", first)
        needed.append(int(count.replace(",", "")))
    assert needed[0] > needed[1] > 100


def test_equal_rates_promise_no_number(runs: Runs) -> None:
    """No number of samples tells apart what does not differ."""
    first, *_ = advised(runs, blocking(80), blocking(80))
    assert (
        "Not told apart from it there: two. How many groups would tell two apart is unknown."
        in first
    )


def test_a_trade_off_is_said_with_what_decides_it(runs: Runs) -> None:
    """The sentence of the pair comes later, since it says less."""
    first, *others = advised(runs, blocking(95, 60), blocking(60, 2))
    assert "With a higher ASR but fewer false alarms: two. Decide by what a missed" in first
    assert not any("is a trade-off" in line for line in others[:2])
    assert any("is a trade-off" in line for line in others)


def test_none_is_chosen_where_none_beats_chance(runs: Runs) -> None:
    """However low the rate of attacks let through."""
    first, *_ = advised(runs, blocking(90, 90), blocking(10, 10))
    assert first.startswith("Which one? None of the 2: none is shown")


def test_one_defense_is_no_choice(runs: Runs) -> None:
    """Nor is anything said where no attack was answered."""
    assert not any("Which one?" in line for line in advised(runs, blocking(80)))
    only_benign = bare_analysis(runs, blocking(0), blocking(0), samples=SAMPLES[100:])
    assert not any("Which one?" in line for line in items(build_document(only_benign)))
