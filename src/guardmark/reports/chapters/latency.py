"""How long the defenses take, attacks and benign samples apart; and what calls consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.frame import SYSTEM
from guardmark.core.record import FIRST_LAYER
from guardmark.reports.chapters.subjects import subject
from guardmark.reports.document.blocks import Histogram, Section, Table, Unit, section
from guardmark.reports.document.cells import figure, known, mute, name, slug, table_of, words
from guardmark.reports.document.wording import count_text, percent_text, side_word, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.costs import PartRetries
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.latency import Latency, LatencyDrift, LatencyHistogram
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import TextCell
    from guardmark.reports.document.cells import Value
    from guardmark.store.columns import PartUsage
    from guardmark.store.loop_load import LoopLoad

_LATENCY_MODES: Final = {
    "isolated": "one call at a time, so times are those of an idle service",
    "loaded": (
        "several calls in flight; a slow answer holds back the next call, so times "
        "under a steady stream of requests may be longer"
    ),
    "open": (
        "calls at planned times, whether or not earlier ones have ended; times count from the plan"
    ),
}


_STAGES: Final = {
    "defense": "defense",
    "warmup": "warm-up",
    "model": "target model",
    "judge": "judge",
    "try": "attacker's tries",
}

_MOST_CHARTS = 6


def write(analysis: RunAnalysis) -> Section:
    """Write the section on latency."""
    timed = []
    for stage, is_baseline, times in _stages(analysis):
        if times.attacks.timed or times.benign.timed:
            timed.append((stage, is_baseline, times))
    remarks: list[str] = []
    for defense in analysis.defenses:
        remarks += _remarks(defense)
    if analysis.pipeline is not None and analysis.pipeline.at_once:
        remarks.append(
            f"{count_text(analysis.pipeline.at_once)} answers of the model came at once although a "
            "stream was asked for: they have no time to their first text."
        )
    remarks += analysis.endpoints
    remarks += _busy(analysis.status.load)
    spent, again = _spending(analysis), None
    if analysis.retries:
        again = _resent(analysis)
    if not timed:
        nothing = " ".join(["No answer was timed.", *remarks])
        if spent is None and again is None:
            return section("latency", "Latency", otherwise=nothing)
        return section("latency", "Latency", nothing, spent, again)
    latency = timed[0][2]
    mode = (
        f"Mode {latency.mode.value}: {_LATENCY_MODES[latency.mode]}. At "
        f"most {count_text(latency.concurrency)} in flight; "
        f"{count_text(latency.warmup)} warm-up calls a defense are left out, and so "
        "are first calls and answers from the cache."
    )
    charts = []
    for defense in analysis.candidates:
        if defense.latency.histogram is not None:
            charts.append(_histogram(defense.name, defense.latency.histogram))
    shown = charts[:_MOST_CHARTS]
    return section("latency", "Latency", mode, _table(timed), remarks, *shown, spent, again)


def _stages(analysis: RunAnalysis) -> list[tuple[TextCell, bool, Latency]]:
    """Return each stage, whether it is a baseline, and its times; then each arm, end to end."""
    stages = [(name(each.name), each.is_baseline, each.latency) for each in analysis.defenses]
    if analysis.pipeline is not None:
        for stage, times in analysis.pipeline.stages.items():
            stages.append((name(stage), False, times))
    for arm in analysis.system:
        stages.append((words(f"{subject(arm.name, SYSTEM)}, end to end"), False, arm.latency))
    return stages


def _table(timed: list[tuple[TextCell, bool, Latency]]) -> Table:
    """Lay the times of each stage, attacks and benign samples apart, baselines set back."""
    rows, is_baseline = [], []
    for stage, is_of_baseline, times in timed:
        for side in (times.attacks, times.benign):
            if side.timed:
                rows.append((stage, side))
                is_baseline.append(is_of_baseline)
    table = table_of(
        rows,
        {
            "Stage": lambda row: row[0],
            "Samples": lambda row: side_word(is_attack=row[1].is_attack),
            "p50": lambda row: figure(row[1].quantiles[0], Unit.MILLISECONDS),
            "p95": lambda row: figure(row[1].quantiles[1], Unit.MILLISECONDS),
            "p99": lambda row: figure(row[1].quantiles[2], Unit.MILLISECONDS),
            "Timed": lambda row: row[1].timed,
            "Timeouts": lambda row: row[1].timeouts,
        },
        table_id="latency-table",
        texts=("Samples",),
        title="Service time",
        note=(
            "Intervals are order statistics and assume no shape. No interval below n: a "
            "point from fewer times than an interval needs, and how many that is. "
            "Timeouts count as at least as long as was waited."
        ),
    )
    return mute(table, is_baseline)


def _remarks(defense: DefenseAnalysis) -> Iterator[str]:
    """Say what has to be known of the times of a defense: cold start, drift, rounding."""
    latency = defense.latency
    if latency.cold_ms:
        first = value_text(latency.cold_ms[0], Unit.MILLISECONDS)
        yield f"{defense.name}: the first call took {first} (cold start, left out)."
    if latency.drift is not None:
        yield f"{defense.name}: {_drift(latency.drift)}"
    if latency.is_counted:
        yield (
            "The run is large, so times are told to three digits, and their limits take "
            "the samples of a group to be alike: they are never too narrow for groups. "
            "The order of its calls is not read, so times that hang together are not "
            "allowed for."
        )
    if latency.is_amortised:
        yield f"{defense.name}: times are shares of a batch's time."
    if latency.shared:
        shared = count_text(latency.shared)
        yield (
            f"{defense.name}: asked once a sample, since the same question gets the same "
            f"answer; {shared} places of later repeats share it."
        )
    if latency.cached:
        cached = count_text(latency.cached)
        yield (
            f"{defense.name}: {cached} answers came from the cache or from stored decisions, "
            "so they have no time."
        )


def _drift(drift: LatencyDrift) -> str:
    """Say how times changed while the run went on."""
    worth = (
        f"for the median, {count_text(drift.calls)} calls are worth about "
        f"{count_text(round(drift.worth))}"
    )
    if drift.quantile is None or drift.first_ms is None or drift.last_ms is None:
        return (
            f"slow calls came in spells of about {count_text(round(drift.spell))} calls: {worth} "
            "that do not hang together, and the limits allow for it."
        )
    became = "faster"
    if drift.last_ms > drift.first_ms:
        became = "slower"
    first = value_text(drift.first_ms, Unit.MILLISECONDS)
    last = value_text(drift.last_ms, Unit.MILLISECONDS)
    return (
        f"calls became {became} while the run went on: p{100 * drift.quantile:g} was {first} in "
        f"the first third and {last} in the last. Times of calls that follow each other hang "
        f"together; {worth}."
    )


_BUSY: Final = 0.9  # of the time of a thread: from here on it is late to read answers
_LEAST_BUSY_NS: Final = 2_000_000_000  # shorter waits are start-up


def _busy(load: LoopLoad) -> Iterator[str]:
    """Say that this machine, and not a service, set the times."""
    if load.share is not None and load.share >= _BUSY and load.total_ns >= _LEAST_BUSY_NS:
        yield (
            "This machine was busy: while it waited for services, the thread that reads "
            f"their answers was at work {percent_text(load.share)} of the time. What "
            "answers took above the median is then partly this machine's time and not "
            "the service's; fewer calls in flight (run.concurrency), or more machines, "
            "tell the service's own."
        )


def _histogram(defense: str, spread: LatencyHistogram) -> Histogram:
    series = []
    if any(spread.attacks):
        series.append(("attacks", spread.attacks))
    if any(spread.benign):
        series.append(("benign", spread.benign))
    return Histogram(
        id=f"latency-{slug(defense)}",
        title=f"{defense}: service time",
        axis="Service time",
        unit=Unit.MILLISECONDS,
        edges=spread.edges_ms,
        series=tuple(series),
        logarithmic=True,
    )


SPENDING_TABLE: Final = "spending"


def _spending(analysis: RunAnalysis) -> Table | None:
    """Write what was consumed; nothing where no service reported any."""
    spent = analysis.spending
    if not spent:
        return None
    total = "No price is known; prices: in the configuration says what calls cost."
    priced = [each.cost for each in spent if each.cost is not None]
    if priced:
        total = f"Together {_money(sum(priced))}, in the currency of the price table."
    total += " Counts what services reported of answered calls; kept answers cost nothing again."
    if analysis.status.possibly_billed:
        total += " Lower bounds: calls were under way when a command was stopped."
    return table_of(
        spent,
        {
            "Part": lambda each: name(each.part),
            "At": _stage,
            "Answers: each may take several requests": lambda each: each.answers,
            "Requests: as they were sent, questions for a repair and retries included": (
                lambda each: each.calls
            ),
            "Kept": lambda each: each.recalled,
            "Tokens read": lambda each: known(each.tokens_read, Unit.COUNT, "not reported"),
            "Tokens written": lambda each: known(each.tokens_written, Unit.COUNT, "not reported"),
            "Cost": _cost,
            "Per 1,000 answers": lambda each: _amount(each.cost_per_1000_answers),
            "Per 1,000 requests": lambda each: _amount(each.cost_per_1000_requests),
        },
        table_id=SPENDING_TABLE,
        title="What the calls consumed",
        texts=("At",),
        note=total,
    )


RETRIES_TABLE: Final = "retries"


def _resent(analysis: RunAnalysis) -> Table:
    """Write which requests failed and were sent again."""
    return table_of(
        analysis.retries,
        {
            "Part": lambda each: name(each.part),
            "At": _stage,
            "Answers|Sent again: answers that took more than one request|"
            "Failed requests: by status, or by kind of failure|"
            "Time: of failed requests, and of waits before the next": _retry_cells,
        },
        table_id=RETRIES_TABLE,
        title="Requests that were sent again",
        note="Latencies are those of the last request of each answer.",
        texts=("At", "Sent again", "Failed requests", "Time"),
    )


def _retry_cells(retries: PartRetries) -> tuple[Value, ...]:
    share = percent_text(retries.resent / retries.answers)
    failed = ", ".join(f"{kind} {count_text(times)} times" for kind, times in retries.failures)
    resent = f"{count_text(retries.resent)} ({share})"
    return retries.answers, resent, failed, f"{retries.seconds:,.1f} s"


def _stage(usage: PartUsage | PartRetries) -> str:
    stage = _STAGES.get(usage.stage, usage.stage)
    if usage.layer.partition("/")[0] == FIRST_LAYER:
        return stage
    return f"{stage} ({usage.layer})"


def _cost(usage: PartUsage) -> str:
    if usage.cost is None:
        return "not priced"
    partly = ""
    if usage.priced < usage.answers:
        partly = f" for {count_text(usage.priced)}"
    return _money(usage.cost) + partly


def _amount(amount: float | None) -> str:
    if amount is None:
        return ""
    return _money(amount)


def _money(amount: float) -> str:
    if amount < 100:
        return f"{amount:,.4f}"
    return f"{amount:,.2f}"
