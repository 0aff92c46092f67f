"""A run in a process of its own, to be killed: `python campaign.py FOLDER COUNT [LIMIT_BYTES]`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from parts import Batched, Inline, Judging, Limits, Model, Remote, number_of, thirds

from guardmark.core.errors import GuardmarkError
from guardmark.core.manifest import LatencyMode, Policy, RunManifest
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.place import NO_GUARD
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.engine.plan import Pipeline, Plan, Timing
from guardmark.engine.runner import Ending, run
from guardmark.engine.supervision import StopSignal
from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir

MANIFEST = RunManifest(
    name="campaign",
    guardmark_version="0",
    config_sha256="",
    data_sha256="",
    created_utc="",
    seed=0,
    repeats=1,
    confidence=0.95,
    min_per_category=100,
    on_malformed=Policy.BLOCK,
    on_error=Policy.BLOCK,
    latency_mode=LatencyMode.LOADED,
    concurrency=16,
    warmup=3,
    evaluator="",
    parts=(),
    data=(),
    categories={},
)


def at_once(prompt: Prompt) -> Decision:
    """Take half a millisecond."""
    time.sleep(0.0005)
    return thirds(prompt)


def shaky(prompt: Prompt) -> Decision:
    """Fail on every tenth sample, the same each time."""
    if number_of(prompt) % 10 == 9:
        evidence = Evidence(message="busy")
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP, evidence=evidence)
    return thirds(prompt)


def plan() -> Plan:
    """Every kind of defense, a model and a judge."""
    parts = (
        Inline(rule=at_once),
        Remote(rule=shaky, delay_s=0.008),
        Batched(batch_limits=Limits(max_count=8, max_wait_s=0.002)),
    )
    names = tuple(part.name for part in parts)
    pipeline = Pipeline(
        arms=(NO_GUARD, *names), model=Model(delay_s=0.008), judges=(Judging(delay_s=0.008),)
    )
    return Plan(defenses=parts, pipeline=pipeline, timing=Timing(warmup=3), concurrency=4)


def main(folder: str, count: str, limit: str = "0") -> int:
    """Run, or go on; the exit code is that of the command line."""
    if int(limit):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    stop = StopSignal()
    signal.signal(signal.SIGINT, lambda *_: stop.set("SIGINT"))
    samples = (
        Sample(
            id=f"s-{n}",
            prompt=Prompt.of_text(f"text {n} " + "word " * (n % 7)),
            label=Label.ATTACK if n % 2 else Label.BENIGN,
        )
        for n in range(int(count))
    )
    run_dir = RunDir(path=Path(folder))
    with run_dir.lock(started="now"), RecordWriter(run_dir.records) as writer:
        writer.load_samples(samples)
        writer.put_manifest(MANIFEST)
        sys.stdout.write("going\n")
        sys.stdout.flush()
        summary = asyncio.run(run(plan(), writer, stop=stop))
    return 130 if summary.ending is Ending.INTERRUPTED else 0


if __name__ == "__main__":
    try:
        code = main(*sys.argv[1:])
    except GuardmarkError as error:
        sys.stderr.write(f"{error}\n")
        code = error.exit_code
    sys.stdout.flush()
    os._exit(code)
