"""Chains of stored decisions decide as live ones do, and are measured as defenses are."""

from __future__ import annotations

import sqlite3
from itertools import product

import numpy as np
import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed, garbled

from guardmark.analysis.compare.chains import Chain, ChainBench, read_bench
from guardmark.analysis.compare.matching import OpenRun, match_runs
from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED
from guardmark.analysis.early_stop import make_schedule
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import IncomparableRuns
from guardmark.core.outcome import Decision, ErrorKind
from guardmark.core.sample import Sample
from guardmark.defenses.chain import ChainRule, settled
from guardmark.store.columns import sample_columns
from guardmark.store.reader import RecordReader

ANSWERS = {ALLOW: allow(), BLOCK: block(), MALFORMED: garbled(), ERROR: failed()}
SAMPLES = [*(attack(n) for n in range(64)), *(benign(n) for n in range(64))]


def digit(place: int) -> Planned:
    """Gives each of the four outcomes, so that three of them give every combination."""

    def decide(_: int, sample: Sample) -> Decision:
        return list(ANSWERS.values())[int(sample.id[2:]) // 4**place % 4]

    return Planned(name=f"d{place}", answers=decide)


def bench_of(runs: Runs, *planned: Planned) -> ChainBench:
    """What these defenses decided, ready to be chained."""
    with runs.opened(SAMPLES, planned) as reader:
        matched = match_runs(
            [OpenRun(label="run", reader=reader)], AnalysisSettings.of(reader.manifest())
        )
        return read_bench(matched, [each.name for each in planned])


@pytest.mark.parametrize(("rule", "settling"), [(ChainRule.ANY, BLOCK), (ChainRule.ALL, ALLOW)])
def test_a_stored_chain_decides_as_a_live_one(runs: Runs, rule: ChainRule, settling: int) -> None:
    """In every combination of outcomes; what a live chain cannot settle is no decision."""
    bench = bench_of(runs, *map(digit, range(3)))
    outcome, _, _ = bench.ask(Chain((0, 1, 2), settling))
    seen = set()
    for codes, decided in zip(bench.outcome.T.tolist(), outcome.tolist(), strict=True):
        votes = [(f"d{at}", ANSWERS[code]) for at, code in enumerate(codes)]
        live = settled(votes, 3, rule)
        assert ANSWERS.get(decided, failed()).outcome is (
            failed().outcome if live is None else live
        )
        seen.add(tuple(codes))
    assert seen == set(product(range(4), repeat=3))


def sure(place: int) -> Planned:
    """Allows or blocks by a digit of the sample's number."""
    return Planned(
        name=f"s{place}",
        answers=lambda _, sample: block() if int(sample.id[2:]) >> place & 1 else allow(),
    )


def test_only_what_had_to_be_asked_takes_time(runs: Runs) -> None:
    """The second is asked where the first settles nothing, and its time added to the first's."""
    bench = bench_of(runs, sure(0), sure(1))
    _, waited, _ = bench.ask(Chain((0, 1)))
    first, second = bench.spent[:, 0]
    asked = bench.outcome[0] != BLOCK
    assert waited == pytest.approx(np.where(asked, first + second, first), nan_ok=True)
    assert asked.any()
    assert not asked.all()


def test_a_candidate_of_which_no_time_is_known_is_asked_last(runs: Runs) -> None:
    """Calls that failed at once say nothing of how long an answer takes."""
    broken = Planned(name="broken", answers=lambda _n, _s: failed(ErrorKind.HTTP))
    assert bench_of(runs, broken, sure(0)).names == ["s0", "broken"]


def test_chains_are_measured_as_defenses_are(runs: Runs) -> None:
    """With counts and intervals, over every sample that they were asked about."""
    bench = bench_of(runs, *map(sure, range(3)))
    _, (chain, single) = bench.measure([Chain((0, 1, 2)), Chain((0,))])
    assert (chain.name, single.name) == (f"any({', '.join(bench.names)})", bench.names[0])
    through = chain.rates.attack_success_rate
    assert (through.successes, through.trials) == (8, 64)
    assert chain.rates.false_positive_rate.successes == 56
    assert (chain.cost, chain.priced) == (None, 0)


def test_a_chain_with_a_defense_that_was_ended_early_is_refused(runs: Runs) -> None:
    """Its last samples were asked for nobody knows what; it is named."""
    settings = {"run": {"stop_when": ["asr<0.5", "fpr<0.5"]}}
    names = ("a", "b")
    planned = [
        Planned(name=n, answers=lambda _, s: block() if s.is_attack else allow()) for n in names
    ]
    samples = [*(attack(n) for n in range(400)), *(benign(n) for n in range(400))]
    with runs.opened(samples, planned, settings=settings) as reader:
        order, path = make_schedule(sample_columns(reader), seed=7).order, reader.path
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "DELETE FROM records WHERE sample = ? AND defense ="
            " (SELECT id FROM defenses WHERE name = 'b')",
            [(int(at),) for at in order[200:]],
        )
    connection.close()
    with RecordReader(path) as reader:
        matched = match_runs(
            [OpenRun(label="run", reader=reader)], AnalysisSettings.of(reader.manifest())
        )
        with pytest.raises(IncomparableRuns, match=r"^b was ended early by a rule"):
            read_bench(matched, [arm.name for arm in matched.frame.arms])
