"""Chains of stored decisions decide as live ones do, and are measured as defenses are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed, garbled

from guardmark.analysis.compare.chains import Chain, ChainBench, read_bench
from guardmark.analysis.compare.matching import OpenRun, match_runs
from guardmark.analysis.defense.frame import ALLOW, BLOCK, ERROR, MALFORMED
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample
from guardmark.defenses.chain import ChainRule, settled

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


def test_chains_are_measured_as_defenses_are(runs: Runs) -> None:
    """With counts and intervals, over every sample that they were asked about."""
    bench = bench_of(runs, *map(sure, range(3)))
    _, (chain, single) = bench.measure([Chain((0, 1, 2)), Chain((0,))])
    assert (chain.name, single.name) == (f"any({', '.join(bench.names)})", bench.names[0])
    through = chain.rates.attack_success_rate
    assert (through.successes, through.trials) == (8, 64)
    assert chain.rates.false_positive_rate.successes == 56
    assert (chain.cost, chain.priced) == (None, 0)
