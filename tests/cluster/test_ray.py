"""Calls in actors of a local Ray: the same records, whatever the actors meet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.engine.parts import Batched, built

from guardmark.app.parts.building import build_parts
from guardmark.app.parts.loading import load_config
from guardmark.app.run.importing import merge_runs
from guardmark.app.run.running import RunOptions, Session, run, run_parts
from guardmark.app.settings import RunSettings
from guardmark.core.errors import BudgetReached, ConfigError, StoreError
from guardmark.core.outcome import Decision
from guardmark.core.record import Stage
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.engine import runner
from guardmark.engine.execution.actors import ActorDefense
from guardmark.engine.execution.cluster import Cluster
from guardmark.engine.plan import Plan
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

pytest.importorskip("ray", reason="Ray is not installed; make ray has an environment with it")

GUARD = '''
"""A guard that some tests make fail."""
import os, signal, time
from pathlib import Path

HERE = Path(__file__).parent
with (HERE / "loaded").open("a") as marks:
    marks.write(f"{os.getpid()}\\n")


if (HERE / "die").exists():
    (HERE / "die").unlink()
    os.kill(os.getpid(), signal.SIGKILL)


def harmful(answer: str) -> bool:
    return "1" in answer


def check(text: str) -> bool:
    number = int(text.split()[1])
    if number == 17 and (HERE / "kill").exists():
        (HERE / "kill").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 18 and (HERE / "poison").exists():
        os._exit(1)
    if number == 19 and (HERE / "hang").exists():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(600)
    if (HERE / "slow").exists():
        time.sleep(0.05)
    return number % 3 == 0
'''
CONFIG = """
version: 1
data: [{path: samples.jsonl}]
defenses:
  code: {type: python, target: "guard.py:check"}
  words: {type: pattern, keywords: ["text 1"]}
  apart: {type: python, target: "guard.py:check", interpreter: PYTHON, batch: 8}
report: [json]
run: RUN
"""
RAY = "{engine: ray, address: local, workers: 2, cpus_per_worker: 0.5, batch: 16}"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    """A local Ray for all tests: to start one takes seconds."""
    settings = RunSettings(engine="ray", address="local", workers=2, cpus_per_worker=0.5, batch=16)
    cluster = Cluster(settings)
    cluster.joined()
    yield cluster
    cluster.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration of three kinds of defenses over 60 samples."""
    lines = [
        f'{{"id": "s{n}", "prompt": "text {n} {"word " * (n % 9)}", "label": "{label}"}}'
        for n in range(60)
        for label in ["attack" if n % 2 else "benign"]
    ]
    (tmp_path / "samples.jsonl").write_text("\n".join(lines))
    (tmp_path / "guard.py").write_text(GUARD)
    return tmp_path


def configured(folder: Path, settings: str, *, name: str = "bench.yaml") -> Path:
    """Write a configuration with these settings of the run."""
    text = CONFIG.replace("PYTHON", sys.executable).replace("RUN", settings)
    (folder / name).write_text(text)
    return folder / name


def measured(config: Path, out: Path, *, only: tuple[str, ...] = ()) -> tuple[Any, list[str]]:
    """Carry out a run; return its records, order aside, and what was announced."""
    lines: list[str] = []
    options = RunOptions(out=out, only=only)
    run(load_config(config), options, Session(announce=lines.append))
    return records(out), lines


def records(out: Path) -> list[tuple[object, ...]]:
    """What was decided, by key: all but the time it took."""
    with RecordReader(out / "records.sqlite") as reader:
        return sorted(
            (
                each.key.defense,
                each.key.stage.value,
                each.key.repeat,
                each.key.sample,
                each.outcome,
                each.score,
                str(each.error_kind),
                str(each.evidence),
            )
            for each in reader.records()
            if each.key.stage is Stage.DEFENSE
        )


def test_local_and_ray_runs_give_the_same_records(folder: Path) -> None:
    """Functions, patterns and processes of their own; and it says what Ray cost."""
    here, _ = measured(configured(folder, "{}"), folder / "here")
    there, lines = measured(configured(folder, RAY, name="ray.yaml"), folder / "there")
    assert there == here
    assert len(here) == 180
    assert any("was ready after" in line for line in lines)


PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "score": len(asked["text"]) / 100}), flush=True)
"""
OTHERS = """
  program: {type: command, command: [PYTHON, program.py], threshold: 0.2}
  cleaned: {type: canonical, of: code, steps: [nfkd, space]}
  either: {type: chain, of: [program, words], rule: any}
"""


def test_programs_and_combined_defenses_give_the_same_records(folder: Path) -> None:
    """What answers line by line, what cleans before another, and what is made of two."""
    (folder / "program.py").write_text(PROGRAM)
    for name, settings in (("here", "{}"), ("there", RAY)):
        config = configured(folder, settings, name=f"{name}.yaml")
        text = config.read_text().replace("report:", f"{OTHERS.lstrip(chr(10))}report:")
        config.write_text(text.replace("PYTHON", sys.executable))
        measured(config, folder / name)
    assert records(folder / "here") == records(folder / "there")
    assert len(records(folder / "here")) == 360


def test_a_local_classifier_decides_the_same(folder: Path, classifier_folder: Path) -> None:
    """Its scores agree to six digits: sums of a model depend on which texts share a batch."""
    settings = f"type: classifier, path: {classifier_folder}, positive: [INJECTION], threshold: 0.5"
    for name, run_settings in (("here", "{}"), ("there", RAY)):
        config = configured(folder, run_settings, name=f"{name}.yaml")
        text = config.read_text().replace("report:", f"  model: {{{settings}}}\nreport:")
        config.write_text(text)
        measured(config, folder / name, only=("model",))
    here, there = records(folder / "here"), records(folder / "there")
    assert len(here) == 60
    assert [(*each[:5], *each[6:]) for each in here] == [(*each[:5], *each[6:]) for each in there]
    assert [each[5] for each in here] == pytest.approx([each[5] for each in there], abs=1e-5)


class _Service(BaseHTTPRequestHandler):
    """A guard behind an address, which blocks what ends in 7."""

    def do_POST(self) -> None:
        """Answer a text."""
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        body = json.dumps({"blocked": text.split()[1].endswith("7")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


STAY = """
  remote: {type: http, url: "http://127.0.0.1:PORT/", body: {text: {$input: text}}, blocked: $.blocked}
  mixed: {type: chain, of: [code, remote], rule: any}
  cleaned: {type: canonical, of: code, steps: [nfkd]}
  after: {type: python, target: "guard.py:harmful", view: response}
pipeline:
  guards: [none, code, mixed, after]
  model: {type: scripted, rules: [{when: "text 1", answer: "It is 1"}], otherwise: "No"}
"""


def test_the_command_that_starts_a_run_builds_nothing_that_workers_build(folder: Path) -> None:
    """Not for its hash, nor to probe it, nor where a guard that stays asks one that does not."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        stay = STAY.lstrip("\n").replace("PORT", str(server.server_port))
        for name, settings in (("here", "{}"), ("there", RAY)):
            config = configured(folder, settings, name=f"{name}.yaml")
            config.write_text(config.read_text().replace("report:", f"{stay}report:"))
            sys.modules.pop(guard_module(folder), None)
            (folder / "loaded").write_text("")
            measured(config, folder / name)
            builders = set((folder / "loaded").read_text().split())
            assert builders
            assert (str(os.getpid()) in builders) is (name == "here")
        server.shutdown()
    assert guard_module(folder) not in sys.modules
    assert records(folder / "there") == records(folder / "here")
    hashes = [
        RecordReader(folder / name / "records.sqlite").manifest() for name in ("here", "there")
    ]
    assert hashes[0].parts == hashes[1].parts
    assert hashes[0].config_sha256 == hashes[1].config_sha256


def guard_module(folder: Path) -> str:
    """The name under which a function's file is imported."""
    return f"guardmark_target_{sha256(str(folder / 'guard.py').encode()).hexdigest()[:16]}"


def test_a_worker_killed_in_the_middle_of_a_batch_loses_nothing(folder: Path) -> None:
    """Its batch is asked again in halves, and the run says so."""
    here, _ = measured(configured(folder, "{}"), folder / "here", only=("code",))
    (folder / "kill").touch()
    config = configured(folder, RAY, name="ray.yaml")
    there, lines = measured(config, folder / "there", only=("code",))
    assert there == here
    assert not (folder / "kill").exists()
    assert any("is asked again in halves" in line for line in lines)


def test_a_worker_killed_while_it_loads_is_replaced(folder: Path) -> None:
    """Also the first one, which says what the defense is."""
    here, _ = measured(configured(folder, "{}"), folder / "here", only=("code",))
    (folder / "die").touch()
    there, _ = measured(configured(folder, RAY, name="ray.yaml"), folder / "there", only=("code",))
    assert there == here
    assert not (folder / "die").exists()


def test_a_worker_that_does_not_come_back_is_ended(folder: Path) -> None:
    """It hears no alarm: what it was asked fails alone, and in its time."""
    here, _ = measured(configured(folder, "{}"), folder / "here", only=("code",))
    (folder / "hang").touch()
    config = configured(folder, RAY.replace("16", "2"), name="ray.yaml")
    config.write_text(config.read_text().replace('check"}', 'check", timeout_s: 1}'))
    there, lines = measured(config, folder / "there", only=("code",))
    differ = [new for old, new in zip(here, there, strict=True) if old != new]
    assert [(each[4], each[6]) for each in differ] == [("error", "timeout")]
    assert any("a worker did not come back" in line for line in lines)


def test_a_sample_that_ends_every_worker_is_an_error_of_its_own(folder: Path) -> None:
    """A failure is no decision, and none of its neighbours fails with it."""
    here, _ = measured(configured(folder, "{}"), folder / "here", only=("code",))
    (folder / "poison").touch()
    config = configured(folder, RAY.replace("16", "2"), name="ray.yaml")
    there, _ = measured(config, folder / "there", only=("code",))
    differ = [(old, new) for old, new in zip(here, there, strict=True) if old != new]
    assert len(differ) == 1
    assert "text 18 " in (folder / "samples.jsonl").read_text().splitlines()[differ[0][1][3]]
    assert (differ[0][1][4], differ[0][1][6]) == ("error", "crash")


def test_a_worker_with_other_files_is_refused(folder: Path, cluster: Cluster) -> None:
    """A hash of all that a defense is made of is compared where it is built."""
    loaded = replace(load_config(configured(folder, RAY)), cluster=cluster)
    parts = build_parts(loaded, None, only=("code",))
    (folder / "guard.py").write_text(GUARD + "\n# another revision\n")
    with pytest.raises(ConfigError, match="code is another one here: hash"):
        run_parts(
            loaded,
            parts,
            services=None,
            options=RunOptions(out=folder / "run", only=("code",)),
            session=Session(),
        )


def test_a_package_that_raises_where_a_worker_loads_it_is_a_refusal(
    folder: Path, cluster: Cluster
) -> None:
    """It is told in the words of the package, and is no crash of the run."""
    loaded = replace(load_config(configured(folder, RAY)), cluster=cluster)
    parts = build_parts(loaded, None, only=("code",))
    (folder / "guard.py").write_text("raise OSError('weights are missing')\n")
    with pytest.raises(ConfigError, match=r"cannot ask code: (?s:.*)weights are missing"):
        run_parts(
            loaded,
            parts,
            services=None,
            options=RunOptions(out=folder / "run", only=("code",)),
            session=Session(),
        )


def test_a_cluster_that_is_too_small_is_refused(folder: Path) -> None:
    """In place of waiting for ever."""
    config = configured(folder, RAY.replace("workers: 2", "workers: 4000"))
    with pytest.raises(ConfigError, match=r"4000 workers with 0\.5 CPU each need 2000"):
        measured(config, folder / "run", only=("code",))


def test_a_driver_that_was_killed_goes_on(folder: Path) -> None:
    """Its cluster ends with it, and the same command asks about what is left."""
    here, _ = measured(configured(folder, "{}"), folder / "here", only=("code",))
    (folder / "slow").touch()
    config = configured(folder, RAY.replace("16", "2"), name="ray.yaml")
    out = folder / "there"
    command = [sys.executable, "-m", "guardmark", "run", str(config), "-o", str(out)]
    driver = subprocess.Popen([*command, "--only", "code"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not stored(out):
        time.sleep(0.1)
    driver.kill()
    driver.wait()
    before = stored(out)
    assert 0 < before < 60
    (folder / "slow").unlink()
    there, _ = measured(config, out, only=("code",))
    assert there == here


def stored(out: Path) -> int:
    """How many decisions are stored by now."""
    try:
        with RecordReader(out / "records.sqlite") as reader:
            return sum(each.key.stage is Stage.DEFENSE for each in reader.records())
    except StoreError:  # not there, or just being made
        return 0


def test_a_run_begun_on_a_cluster_goes_on_elsewhere_without_one(folder: Path) -> None:
    """Another folder, no Ray: what is stored stays, the rest is asked in this process."""
    here, _ = measured(configured(folder, "{}"), folder / "here", only=("code",))
    config = configured(
        folder, RAY.replace("batch: 16", "batch: 16, max_calls: 30"), name="ray.yaml"
    )
    with pytest.raises(BudgetReached):
        measured(config, folder / "there", only=("code",))
    assert 0 < stored(folder / "there") < 60
    elsewhere = folder.with_name(f"{folder.name}-elsewhere")
    shutil.copytree(folder, elsewhere)
    there, _ = measured(elsewhere / "bench.yaml", elsewhere / "there", only=("code",))
    assert there == here


class Narrow(Batched):
    """Has memory for four texts at once."""

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Refuse more."""
        if len(prompts) > 4:
            raise MemoryError
        return await super().decide_batch(prompts)


async def asked_in_actors(
    folder: Path, make: type[Batched], cluster: Cluster, count: int = 60
) -> tuple[Any, Any]:
    """Ask a defense of a class about samples in two actors; return what is stored, and notes."""
    mine = Cluster(cluster.settings)  # it has notes of its own
    plan = Plan(defenses=(ActorDefense("batched", partial(built, make), mine),))
    with RecordWriter(folder / "records.sqlite") as writer:
        writer.load_samples(
            Sample(id=f"s{n}", prompt=Prompt.of_text(f"text {n}"), label=Label.ATTACK)
            for n in range(count)
        )
        summary = await runner.run(plan, writer)
    with RecordReader(folder / "records.sqlite") as reader:
        stored = [(each.key.sample, each.outcome) for each in reader.records()]
    return stored, summary.notes


async def test_an_actor_out_of_memory_has_its_batches_halved(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Until they fit, and the run says so; every sample is answered, and once."""
    stored, notes = await asked_in_actors(tmp_path, Narrow, cluster)
    assert stored == [(n, "allow" if n % 3 else "block") for n in range(60)]
    halved = [note for note in notes if "ran out of memory" in note]
    assert halved
    assert all("its batch of 8 is asked again in halves" in note for note in halved)


def test_a_full_object_store_changes_nothing(folder: Path) -> None:
    """What others keep there is written to disk by Ray; prompts and answers travel on."""
    import ray

    here, _ = measured(configured(folder, "{}"), folder / "here", only=("code",))
    rows = (folder / "samples.jsonl").read_text()
    (folder / "samples.jsonl").write_text(rows.replace('", "label"', f'{" la" * 60_000}", "label"'))
    kept = [ray.put(bytes(30 << 20)) for _ in range(12)]  # more than it holds
    there, _ = measured(configured(folder, RAY, name="ray.yaml"), folder / "there", only=("code",))
    assert there == here
    assert all(len(each) == 30 << 20 for each in ray.get(kept[:1]))


def test_a_shard_begun_on_a_cluster_is_continued_and_merged_elsewhere(folder: Path) -> None:
    """Another machine has a copy of the folder and no Ray: the whole is that of one run."""
    whole, _ = measured(configured(folder, "{}"), folder / "whole", only=("code",))
    config = configured(folder, RAY.replace("batch: 16", "batch: 8, max_calls: 8"), name="ray.yaml")
    first = RunOptions(out=folder / "first", only=("code",), shard="1/2")
    with pytest.raises(BudgetReached):
        run(load_config(config), first, Session())
    assert 0 < stored(folder / "first") < 30
    elsewhere = folder.with_name(f"{folder.name}-elsewhere")
    shutil.copytree(folder, elsewhere)
    local = load_config(elsewhere / "bench.yaml")
    for number, name in ((1, "first"), (2, "second")):
        given = replace(first, out=elsewhere / name, shard=f"{number}/2")
        run(local, given, Session())
    shards = [elsewhere / "first", elsewhere / "second"]
    merge_runs(shards, elsewhere / "merged", now=Session().now)
    assert records(elsewhere / "merged") == whole
