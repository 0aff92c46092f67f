"""Guards that stream: what had gone out before the block, and what is undefined."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.small_runs import Planned, Runs, attack, benign

from guardmark.analysis.run import analyse_run
from guardmark.core.outcome import Decision, Evidence, Outcome, StreamTrace
from guardmark.core.sample import Sample
from guardmark.reports.chapters.streaming import write_streaming


def streamed(number: int, sample: Sample) -> Decision:
    """Block every attack, one in four at once and the others after 20 characters."""
    outcome = Outcome.BLOCK if sample.is_attack else Outcome.ALLOW
    is_out = not sample.is_attack or number % 4 != 0
    trace = StreamTrace(
        characters=20 if is_out else 0,
        chunks=2 if is_out else 0,
        first_ns=5_000_000 if is_out else None,
        block_ns=60_000_000 if sample.is_attack else None,
    )
    return Decision(outcome=outcome, evidence=Evidence(stream=(trace,)))


SERVICE = Planned(
    name="s",
    answers=streamed,
    type="http",
    settings={"stream": {"each": "$.chunk", "blocked": "$.blocked"}},
)


def test_what_had_gone_out_is_told_with_groups(runs: Runs) -> None:
    """Of 20 blocked attacks 15 had let something out; five had no first chunk."""
    samples = [*(attack(n) for n in range(20)), *(benign(n) for n in range(20))]
    with runs.opened(samples, [SERVICE]) as reader:
        analysis = analyse_run(reader)
    streaming = analysis.defenses[0].streaming
    assert streaming is not None
    assert (streaming.shown.successes, streaming.shown.trials) == (15, 20)
    median, p95 = streaming.characters
    assert (median.value, p95.value) == (20, None)
    assert p95.reason  # twenty are too few for it
    assert streaming.block_ms[0].value == pytest.approx(60)
    assert [each.trials for each in streaming.first_ms] == [35, 35]
    assert write_streaming(analysis) is not None


def test_without_a_blocked_attack_nothing_is_zero(runs: Runs) -> None:
    """What nothing was blocked of is undefined."""
    samples = [benign(n) for n in range(5)]
    with runs.opened(samples, [SERVICE]) as reader:
        streaming = analyse_run(reader).defenses[0].streaming
    assert streaming is not None
    assert streaming.shown.value is None
    assert [each.value for each in streaming.characters] == [None, None]


def told(runs: Runs, counted_until: int) -> tuple[list[float | None], str]:
    """Tokens before the block and the sentences, where the first attacks alone are counted."""

    def answers(number: int, sample: Sample) -> Decision:
        decision = streamed(number, sample)
        assert decision.evidence is not None
        (trace,) = decision.evidence.stream
        tokens = number if number < counted_until else None
        return replace(decision, evidence=Evidence(stream=(replace(trace, tokens=tokens),)))

    with runs.opened([attack(n) for n in range(9)], [replace(SERVICE, answers=answers)]) as reader:
        analysis = analyse_run(reader)
    streaming, section = analysis.defenses[0].streaming, write_streaming(analysis)
    assert streaming is not None
    assert section is not None
    tokens = [streaming.tokens[0].value, streaming.tokens[0].trials]
    return tokens, str(section.blocks)


def test_tokens_are_told_where_they_were_counted(runs: Runs) -> None:
    """Of all nine, of seven with the number, of none with the reason."""
    tokens, said = told(runs, 9)
    assert tokens == [4, 9]
    assert "Tokens, median" in said
    assert "tokens were counted" not in said
    tokens, said = told(runs, 7)
    assert tokens == [3, 7]
    assert "tokens were counted up to the block in 7 of 9 blocked attacks" in said
    tokens, said = told(runs, 0)
    assert tokens == [None, 0]
    assert "Tokens, median" not in said
    assert "no tokens are told" in said
