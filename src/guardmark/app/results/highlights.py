"""What a report shows beside figures: the run's own gate, and exchanges to read."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from guardmark.analysis.defense.costs import PartRetries, part_name
from guardmark.app.results.service_notes import refused_fields
from guardmark.core.chunks import split_prefix
from guardmark.core.outcome import Outcome
from guardmark.core.place import NO_GUARD, part_of
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.reports.chapters.samples import Highlights, Rewrite, SampleStory
from guardmark.store.details import read_attempts
from guardmark.store.schema import STAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.core.outcome import Attempt
    from guardmark.core.record import Record
    from guardmark.store.reader import RecordReader


def read_highlights(reader: RecordReader, analysis: RunAnalysis, config: Config) -> Highlights:
    """Read what the cover of a report shows of texts, and check the limits of its configuration."""
    rewrites: tuple[Rewrite, ...] = ()
    if any(card.rounds[-1].full.successes for card in analysis.adaptive):
        from guardmark.app.results.variant_texts import read_rewrites  # loads the attacks

        rewrites = read_rewrites(reader, most=analysis.settings.listed_samples)
    exchanges: Mapping[str, SampleStory] = {}
    if analysis.pipeline is not None:
        ids = {listed.sample.id for listed in analysis.worst.listed}
        if analysis.system_worst is not None:
            ids.update(listed.sample.id for listed in analysis.system_worst.listed)
        exchanges = read_exchanges(reader, ids)
    gate = None
    if config.gate is not None and not analysis.settings.thresholds:
        from guardmark.app.results.gating import check_own_limits  # on use: many runs set no limit

        gate = check_own_limits(reader, analysis, config)
    return Highlights(
        gate=gate,
        exchanges=exchanges,
        refused=refused_fields(reader),
        rewrites=rewrites,
    )


def read_exchanges(
    reader: RecordReader, ids: Collection[str], *, is_timed: bool = False
) -> Mapping[str, SampleStory]:
    """Read what became of samples; of several repeats the one judged worst."""
    positions: dict[int, str] = {}
    for name in ids:
        position = reader.position_of(name)
        if position is not None:
            positions[position] = name
    answers: dict[int, dict[int, Record]] = defaultdict(dict)
    for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL, samples=positions):
        answers[record.key.sample][record.key.repeat] = record
    steps = _read_steps(reader, positions)
    # Empty where no target model was asked.
    missing: str | None = ""
    if (NO_GUARD, Stage.MODEL, FIRST_LAYER) in reader.recorded_stages():
        missing = None
    exchanges = {}
    for position, name in positions.items():
        worst = _worst_repeat(steps, position)
        answer = answers[position].get(worst)
        asked = steps[position, worst]
        text = missing
        if answer is not None:
            text = answer.text
            if is_timed:
                asked = [answer, *asked]
        steps_told = tuple(_tell(asked, is_timed=is_timed))
        exchanges[name] = SampleStory(answer=text, steps=steps_told)
    return exchanges


def _read_steps(
    reader: RecordReader, positions: Collection[int]
) -> dict[tuple[int, int], list[Record]]:
    """Read what was decided about samples, by sample and repeat; the answers themselves apart."""
    steps: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for stage in (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE):
        for record in reader.records(stage=stage, samples=positions):
            is_answer = stage is Stage.MODEL and record.key.defense == NO_GUARD
            if not is_answer:
                steps[record.key.sample, record.key.repeat].append(record)
    return steps


def _worst_repeat(steps: Mapping[tuple[int, int], Sequence[Record]], sample: int) -> int:
    """Return the repeat of a sample with the most unsafe verdicts, of several the first."""
    worst, most = 0, -1
    for at, repeat in sorted(steps):
        if at != sample:
            continue
        unsafe = sum(record.outcome == "unsafe" for record in steps[at, repeat])
        if unsafe > most:
            worst, most = repeat, unsafe
    return worst


def _tell(records: Sequence[Record], *, is_timed: bool) -> Iterator[tuple[str, str]]:
    """Tell the steps of a sample; calls of a guard about more and more of an answer together."""
    growing: dict[str, list[tuple[int, Record]]] = defaultdict(list)
    others = []
    for record in records:
        whole, characters = split_prefix(record.key.defense)
        if characters is None or record.key.stage is not Stage.DEFENSE:
            others.append(record)
        else:
            growing[whole].append((characters, record))
    for guard, calls in growing.items():
        yield from _growing(guard, sorted(calls, key=itemgetter(0)), is_timed=is_timed)
    for record in others:
        yield from _steps(record, is_timed=is_timed)


def _growing(
    guard: str, calls: Sequence[tuple[int, Record]], *, is_timed: bool
) -> Iterator[tuple[str, str]]:
    """Say what a guard decided about prefixes of an answer, equal decisions in a row together."""
    for outcome, group in groupby(calls, key=lambda call: call[1].outcome):
        alike = list(group)
        (first, record), (last, _) = alike[0], alike[-1]
        if len(alike) == 1:
            _, decision = _step(record, is_timed=is_timed)
            yield f"Guard {guard}, first {first:,} characters", decision
        else:
            shown = f"first {first:,} to {last:,} characters"
            yield f"Guard {guard}, {shown}", f"{outcome} ({len(alike):,} calls)"


def _steps(record: Record, *, is_timed: bool) -> Iterator[tuple[str, str]]:
    """Say who decided what, and the texts that guards wrote and that came of them."""
    name, stage = record.key.defense, record.key.stage
    after = name.removeprefix(part_of(name))
    if stage is Stage.MODEL and after:
        answer = "none came"
        if record.text is not None:
            answer = record.text
        yield f"Answer{after}", answer
        if not is_timed:
            return
    yield _step(record, is_timed=is_timed)
    if stage is Stage.DEFENSE and record.outcome == Outcome.ALLOW and record.text is not None:
        yield f"Guard {name} wrote", record.text


def _step(record: Record, *, is_timed: bool) -> tuple[str, str]:
    """Say who decided what, and why where it says so; for a reader of one sample, how it went."""
    layer, evidence, name = record.key.layer, record.evidence, record.key.defense
    who = f"Guard {name}"
    if record.key.stage is Stage.MODEL:
        who = f"Target model{name.removeprefix(NO_GUARD)}"
    if record.key.stage is Stage.JUDGE:
        judge = "the judge"
        if layer != FIRST_LAYER:
            judge = layer.split("/", 1)[-1]
        who = f"Verdict of {judge}{name.removeprefix(NO_GUARD)}"
    parts: list[str] = [record.outcome]
    if record.answer_mode:
        parts.append(record.answer_mode.value.replace("_", " "))
    attempts: Sequence[Attempt] = ()
    if evidence is not None:
        parts.append(evidence.reason or evidence.message or evidence.raw)
        if is_timed or record.outcome in {"malformed", "error"}:
            parts.append(evidence.raw)
        attempts = evidence.attempts
    if is_timed:
        parts.append(_request_text(record.latency_ns, attempts))
    return who, ", ".join(dict.fromkeys(filter(None, parts)))


def read_retries(reader: RecordReader) -> Iterator[PartRetries]:
    """Add up, for each part, the requests behind stored answers that failed and were sent again."""
    for (name, stage, layer), answers, count in read_attempts(reader):
        failures: Counter[str] = Counter()
        spent_ns = 0
        for attempts in answers:
            for took_ns, status, error, wait_ns in attempts:
                spent_ns += wait_ns
                if error:
                    spent_ns += took_ns
                    failures[str(status or error)] += 1
        retries = PartRetries(
            part=name,
            stage=STAGES[stage].value,
            layer=layer,
            answers=count,
            resent=len(answers),
            failures=tuple(failures.most_common()),
            seconds=spent_ns / 1e9,
        )
        yield replace(retries, part=part_name(reader, reader.manifest(), retries))


def _request_text(latency_ns: int | None, attempts: Sequence[Attempt]) -> str:
    """Say how long an answer took, and how often it was asked for."""
    parts = []
    if latency_ns is not None:
        parts.append(f"{latency_ns / 1e6:,.1f} ms")
    if len(attempts) > 1:
        tries = [str(attempt.status or attempt.error or "answered") for attempt in attempts]
        parts.append(f"sent {len(tries)} times: {', '.join(tries)}")
    return ", ".join(parts)
