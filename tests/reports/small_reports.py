"""A run with everything in it, hostile texts and names among them."""

from __future__ import annotations

from dataclasses import replace

from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed, garbled

from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision
from guardmark.core.sample import Prompt, Sample, Severity

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script> | ![x](https://evil.example/p.png)"
    " [a](javascript:1) `code` ``` @everyone\r\n# heading\u2028=SUM(A1)\u202e\x00 www.evil.example"
)
HOSTILE_NAME = "=cmd|'/c calc'!A1<b>|`x`\x1b[31m"


def many(count: int = 300) -> list[Sample]:
    """Attacks, some of them variants, and benign samples; one of each is hostile."""
    attacks = [attack(n, group=f"g{n // 2}" if n < 60 else "") for n in range(count - 1)]
    attacks.append(
        attack(
            count,
            prompt=Prompt.of_text(HOSTILE * 20),
            technique=HOSTILE_NAME,
            category="jailbreak",
            severity=Severity.CRITICAL,
            subcategory=HOSTILE_NAME,
            language=HOSTILE_NAME,
        )
    )
    return [*attacks, *(benign(n) for n in range(count))]


def score_of(position: int, sample: Sample) -> float:
    """Attacks higher than benign samples, with an overlap."""
    return (0.35 if sample.is_attack else 0.05) + 0.6 * ((position * 37) % 100) / 100


def scored(position: int, sample: Sample) -> Decision:
    """Blocks from 0.5 on."""
    score = 0.1 if sample.technique == HOSTILE_NAME else score_of(position, sample)
    return block(score) if score >= 0.5 else allow(score)


def shaky(position: int, sample: Sample) -> Decision:
    """Fails now and then."""
    if position % 41 == 0:
        return failed()
    if position % 67 == 0:
        return garbled()
    return block() if sample.is_attack and position % 3 and position % 100 < 98 else allow()


PLANNED = (
    Planned(name="nothing", type="allow-all", answers=lambda _p, _s: allow()),
    Planned(name="words", answers=shaky),
    Planned(name="ngram", type="ngram", answers=scored, threshold=0.5),
)


def full_analysis(runs: Runs, **run: object) -> RunAnalysis:
    """The analysis of a run with everything in it."""
    with runs.opened(many(), PLANNED, **run) as reader:
        settings = replace(
            AnalysisSettings.of(reader.manifest()),
            cost_missed_attack=50.0,
            cost_false_alarm=1.0,
            run_folder="runs/small/1",
        )
        return analyse_run(reader, settings)


def bare_analysis(runs: Runs, *answers: object, samples: list[Sample] | None = None) -> RunAnalysis:
    """The analysis of a run with as little as possible."""
    planned = [
        Planned(name=("one", "two", "three")[at], answers=each)  # type: ignore[arg-type]
        for at, each in enumerate(answers)
    ]
    with runs.opened(samples or [benign(0)], planned) as reader:
        return analyse_run(reader)
