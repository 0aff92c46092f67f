"""Small pipeline runs with planted truths, written through the store's own writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.analysis.small_runs import Planned, make_manifest

from guardmark.core.manifest import PartManifest, Policy
from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    ErrorKind,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.record import Stage
from guardmark.core.sample import Sample
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter

SAFE_ANSWER = Verdict(label=VerdictLabel.SAFE, answer_mode=AnswerMode.ANSWERED)
REFUSAL = Verdict(label=VerdictLabel.SAFE, answer_mode=AnswerMode.REFUSED_OR_BLOCKED)
UNSAFE_ANSWER = Verdict(label=VerdictLabel.UNSAFE, answer_mode=AnswerMode.ANSWERED)
GARBLED = Verdict(label=VerdictLabel.MALFORMED)

Judged = Callable[[int, Sample], Verdict]


@dataclass(frozen=True, kw_only=True)
class PlannedPipeline:
    """A whole pipeline to be written: what each part says by position and sample."""

    samples: Sequence[Sample]
    guards: Sequence[Planned] = ()
    judges: Mapping[str, Judged] = field(default_factory=dict)
    arms: Sequence[str] = ("none",)
    places: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    behind: Sequence[Planned] = ()
    fails: Callable[[int], bool] = lambda _position: False
    says: Callable[[int], str] = lambda position: f"answer {position}"
    took_ms: Callable[[str, int], int] = lambda _part, _position: 1
    people: Mapping[int, VerdictLabel] = field(default_factory=dict)
    later: Mapping[str, Judged] = field(default_factory=dict)
    begins: Mapping[str, Mapping[int, Decision | Verdict]] = field(default_factory=dict)
    repeats: int = 1
    on_malformed: Policy = Policy.BLOCK
    on_error: Policy = Policy.BLOCK


def write_pipeline(path: Path, planned: PlannedPipeline) -> Path:
    """Write a pipeline run and return the file."""
    stated: dict[str, object] = {"guards": list(planned.arms)}
    if planned.places:
        stated = {"guards": [], "arms": planned.places}
    known = {guard.name: guard for guard in (*planned.guards, *planned.behind)}
    manifest = make_manifest(
        list(known.values()),
        planned.samples,
        repeats=planned.repeats,
        on_malformed=planned.on_malformed,
        on_error=planned.on_error,
        settings={"pipeline": stated},
    )
    parts = [PartManifest(name="tutor", kind="model", type="scripted")]
    parts += [PartManifest(name=name, kind="judge", type="scripted") for name in planned.judges]
    object.__setattr__(manifest, "parts", (*manifest.parts, *parts))
    with RecordWriter(path) as writer:
        writer.put_manifest(manifest)
        writer.load_samples(planned.samples)
        writer.plan(0)
        for repeat in range(planned.repeats):
            _write_repeat(writer, planned, repeat)
        if planned.people:
            writer.add_layer("human", {"kind": "human"})
            lane = writer.record_batch("none", Stage.JUDGE, layer="human")
            for position, label in planned.people.items():
                lane.add(position, Verdict(label=label), latency_ns=None)
        writer.finish(RunState.COMPLETE)
    return path


def _write_repeat(writer: RecordWriter, planned: PlannedPipeline, repeat: int) -> None:
    several = len(planned.judges) > 1
    layers = {f"run/{name}" if several else "run": said for name, said in planned.judges.items()}
    for guard in planned.guards:
        lane = writer.record_batch(guard.name, repeat=repeat)
        for position, sample in enumerate(planned.samples):
            took_ns = planned.took_ms(guard.name, position) * 1_000_000
            lane.add(position, guard.answers(position, sample), latency_ns=took_ns)
    for guard in planned.behind:
        lane = writer.record_batch(f"{guard.name}@output", repeat=repeat)
        for position, sample in enumerate(planned.samples):
            if not planned.fails(position):
                lane.add(position, guard.answers(position, sample), latency_ns=1_000_000)
    _write_begins(writer, planned, repeat)
    model = writer.record_batch("none", Stage.MODEL, repeat=repeat)
    for position in range(len(planned.samples)):
        failed = Response(text=None, error_kind=ErrorKind.TIMEOUT)
        answer = failed if planned.fails(position) else Response(text=planned.says(position))
        model.add(position, answer, latency_ns=planned.took_ms("model", position) * 1_000_000)
    for layer, said in {**layers, **planned.later}.items():
        lane = writer.record_batch("none", Stage.JUDGE, layer=layer, repeat=repeat)
        for position, sample in enumerate(planned.samples):
            if not planned.fails(position):
                took_ns = planned.took_ms(layer, position) * 1_000_000
                lane.add(position, said(position, sample), latency_ns=took_ns)


def _write_begins(writer: RecordWriter, planned: PlannedPipeline, repeat: int) -> None:
    """Write what was said of prefixes of answers: decisions, and verdicts on them."""
    for name, answers in planned.begins.items():
        stage = Stage.JUDGE if name.startswith("none ") else Stage.DEFENSE
        lane = writer.record_batch(name, stage, repeat=repeat)
        for position, said in answers.items():
            lane.add(position, said, latency_ns=1_000_000)


@contextmanager
def opened_pipeline(folder: Path, planned: PlannedPipeline) -> Iterator[RecordReader]:
    """Write a pipeline run and open it."""
    home = folder / f"pipeline-{len(list(folder.iterdir()))}"
    home.mkdir()
    with RecordReader(write_pipeline(home / "records.sqlite", planned)) as reader:
        yield reader


def perfect(_position: int, sample: Sample) -> Decision:
    """Block every attack and no benign sample."""
    from tests.analysis.small_runs import allow, block

    return block() if sample.is_attack else allow()
