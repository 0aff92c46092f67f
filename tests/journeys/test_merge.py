"""`run --shard` and `merge`: a run measured in parts, and joined without a trace of the cuts."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark, words

from guardmark.app.parts.loading import builtin_config, load_config, parse_config
from guardmark.app.results.gating import gate
from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import merge_runs
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import GuardmarkError, StoreError
from guardmark.store.reader import RecordReader

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GUARD = """\
from hashlib import sha256
from pathlib import Path

from guardmark import Decision, Outcome

def check(text):
    number = sha256(text.encode()).digest()[0]
    if number < 30 and Path("down").exists():
        raise RuntimeError("down")
    outcome = Outcome.BLOCK if number % 3 else Outcome.ALLOW
    return Decision(outcome=outcome, latency_ns=1000 + number)
"""
CONFIG = """\
version: 1
name: mine
data: [{builtin: core}]
defenses:
  mine: {type: python, target: "guard.py:check"}
run: {error_limit: 1.0}
"""


def measured(config: Path, out: Path, **options: object) -> Path:
    """A finished run with its reports, all at the same moment."""
    loaded = load_config(config)
    given = RunOptions(out=out, **options)  # type: ignore[arg-type]
    folder = run(loaded, given, Session(now=NOW)).folder
    finish(folder, loaded.config, formats=loaded.config.report)
    return folder.path


def merged(*runs: Path, out: Path, allow_missing: bool = False) -> Path:
    """Runs as one."""
    merge_runs(runs, out, now=NOW, allow_missing=allow_missing)
    return out


def refused(*runs: Path, out: Path) -> str:
    """Why runs are not merged; nothing is written then."""
    with pytest.raises(GuardmarkError) as caught:
        merge_runs(runs, out, now=NOW)
    assert not out.exists()
    assert not list(out.parent.glob(".*merging"))
    return str(caught.value)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the whole run and its four shards."""
    home = tmp_path_factory.mktemp("merge")
    (home / "guard.py").write_text(GUARD, encoding="utf-8")
    (home / "bench.yaml").write_text(CONFIG, encoding="utf-8")
    measured(home / "bench.yaml", home / "whole", limit=120)
    for number in range(1, 5):
        measured(home / "bench.yaml", home / f"s{number}", limit=120, shard=f"{number}/4")
    return home


def shards(home: Path) -> list[Path]:
    """The four shards."""
    return [home / f"s{number}" for number in range(1, 5)]


@pytest.mark.slow
def test_merged_shards_are_the_whole_byte_for_byte(home: Path, tmp_path: Path) -> None:
    """In whatever order they are named; and the run can be verified like any other."""
    path = merged(*reversed(shards(home)), out=tmp_path / "merged")
    for name in ("summary.json", "categories.csv", "variant_metrics.csv"):
        assert (path / name).read_bytes() == (home / "whole" / name).read_bytes()
    lines = [
        [line for line in (each / "results.jsonl").read_text().splitlines() if "warmup" not in line]
        for each in (home / "whole", path)
    ]
    assert lines[0] == lines[1]
    assert verify(path).holds
    said = json.loads((path / "environment.json").read_text(encoding="utf-8"))
    assert [each["shard"] for each in said["merged"]] == ["4/4", "3/4", "2/4", "1/4"]


@pytest.mark.slow
def test_sixteen_shards_of_the_built_in_data_are_the_whole(tmp_path: Path) -> None:
    """The built-in defenses take their own times; every other figure is the same."""
    loaded, parts = builtin_config(), []
    for shard in (None, *(f"{n}/16" for n in range(1, 17))):
        out = tmp_path / (shard or "whole").replace("/", "-")
        options = RunOptions(out=out, limit=160, shard=shard)
        parts.append(run(loaded, options, Session(now=NOW)).folder)
    finish(parts[0], loaded.config, formats=("json",))
    path = merged(*(part.path for part in parts[1:]), out=tmp_path / "merged")
    whole, joined = (
        (each / "summary.json").read_text(encoding="utf-8").partition('\n  "timing": ')
        for each in (parts[0].path, path)
    )
    assert whole[1]
    assert whole[0] == joined[0]


PIPELINE = """\
version: 1
name: piped
data: [{builtin: core}]
defenses:
  pattern: {type: pattern, builtin: true}
pipeline:
  guards: [none, pattern]
  model: {type: scripted, otherwise: "Sure, here it is."}
  judges: [{type: rules, unsafe: [here it is]}, {type: rules, name: other, unsafe: [sure]}]
"""


@pytest.mark.slow
def test_shards_of_a_pipeline_are_the_whole(tmp_path: Path) -> None:
    """What was never asked, since a guard blocked it, is missing in neither of them."""
    loaded = parse_config(PIPELINE, folder=tmp_path, shown_as="piped")
    folders = [
        run(loaded, RunOptions(out=tmp_path / name, limit=60, shard=shard), Session(now=NOW)).folder
        for name, shard in (("whole", None), ("s1", "1/2"), ("s2", "2/2"))
    ]
    finish(folders[0], loaded.config, formats=("json",))
    path = merged(folders[1].path, folders[2].path, out=tmp_path / "merged")
    whole, joined = (
        (each / "summary.json").read_text(encoding="utf-8").partition('\n  "timing": ')
        for each in (folders[0].path, path)
    )
    assert whole[1]
    assert whole[0] == joined[0]
    assert verify(path).holds


@pytest.mark.slow
def test_a_shard_by_itself_says_which_part_it_is(home: Path) -> None:
    """Its title, its summary and its description name the shard."""
    summary = json.loads((home / "s3" / "summary.json").read_text(encoding="utf-8"))
    assert summary["run"]["name"] == "mine (shard 3 of 4)"
    assert "mine (shard 3 of 4)" in (home / "s3" / "report.html").read_text(encoding="utf-8")
    assert "shard: 3/4" in (home / "s3" / "config.resolved.yaml").read_text(encoding="utf-8")
    assert verify(home / "s3").holds


@pytest.mark.slow
def test_a_shard_is_continued_and_no_other(home: Path, tmp_path: Path) -> None:
    """The same command continues with its shard; another one does not end up in its folder."""
    shutil.copytree(home / "s1", tmp_path / "s1")
    again = measured(home / "bench.yaml", tmp_path / "s1", limit=120, shard="1/4")
    with (
        RecordReader(again / "records.sqlite") as reader,
        RecordReader(home / "s1" / "records.sqlite") as before,
    ):
        assert reader.status().head == before.status().head
    with pytest.raises(StoreError, match="another shard"):
        measured(home / "bench.yaml", tmp_path / "s1", limit=120, shard="2/4")


@pytest.mark.slow
def test_missing_doubled_and_foreign_shards_are_named(home: Path, tmp_path: Path) -> None:
    """Each with what is wrong about it, and nothing is written."""
    one, two, three, four = shards(home)
    out = tmp_path / "out"
    assert "missing of 4 shards: 2,4 (--allow-missing" in refused(one, three, out=out)
    shutil.copytree(two, tmp_path / "copy")
    assert "shard 2 is in s2 and in copy" in refused(one, two, tmp_path / "copy", out=out)
    assert "named twice" in refused(one, two, one, out=out)
    assert "whole is not a shard" in refused(one, home / "whole", out=out)
    halves = measured(home / "bench.yaml", tmp_path / "half", limit=120, shard="1/2")
    assert "half is one of 2 shards" in refused(one, two, three, four, halves, out=out)
    other = home / "other.yaml"
    other.write_text(CONFIG.replace("1.0}", "1.0, repeats: 2}"), encoding="utf-8")
    foreign = measured(other, tmp_path / "foreign", limit=120, shard="4/4")
    assert "'run.repeats' is 2, not 1" in refused(one, two, three, foreign, out=out)
    # The odd one is named wherever it stands, and no other.
    for odd in (halves, foreign):
        first = refused(odd, one, two, three, out=out)
        assert {odd.name} == {line.split()[0] for line in first.splitlines()[1:]}
    more = measured(home / "bench.yaml", tmp_path / "more", limit=100, shard="4/4")
    assert "'run.limit' is 100, not 120" in refused(one, two, three, more, out=out)


@pytest.mark.slow
def test_a_changed_shard_is_refused(home: Path, tmp_path: Path) -> None:
    """Records that are not those of the hash chain come into no merged run."""
    shutil.copytree(home / "s1", tmp_path / "s1")
    with closing(sqlite3.connect(tmp_path / "s1" / "records.sqlite")) as connection, connection:
        connection.execute("UPDATE records SET outcome = 1 - outcome WHERE outcome < 2")
    assert "s1 is not what was committed" in refused(
        tmp_path / "s1", *shards(home)[1:], out=tmp_path / "out"
    )


@pytest.mark.slow
def test_what_is_missing_stands_in_every_report(home: Path, tmp_path: Path) -> None:
    """And the part that came late can still be merged in, to the whole."""
    one, two, three, four = shards(home)
    path = merged(one, two, four, out=tmp_path / "most", allow_missing=True)
    said = "mine (3 of 4 shards; missing: 3)"
    for name in ("summary.json", "summary.md", "report.html"):
        assert said in (path / name).read_text(encoding="utf-8")
    assert verify(path).holds
    policy = tmp_path / "gate.yaml"
    policy.write_text("fpr_upper: 0.9\n", encoding="utf-8")
    assert gate(path, policy=policy).run == said
    assert gate(home / "whole", policy=policy).run == "mine"
    whole = merged(path, three, out=tmp_path / "all")
    assert (whole / "summary.json").read_bytes() == (home / "whole" / "summary.json").read_bytes()


@pytest.mark.slow
def test_a_defense_is_added_to_a_finished_run(home: Path, tmp_path: Path) -> None:
    """Both over the same data, and compared in one run; figures are those of a run of both."""
    other = CONFIG.replace(
        'mine: {type: python, target: "guard.py:check"}', "none-at-all: {type: allow-all}"
    )
    (home / "beside.yaml").write_text(other, encoding="utf-8")
    beside = measured(home / "beside.yaml", tmp_path / "beside", limit=120)
    path = merged(home / "whole", beside, out=tmp_path / "both")
    assert verify(path).holds
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    assert {each["name"] for each in summary["defenses"]} == {"mine", "none-at-all"}
    assert summary["comparison"]["pairs"]
    assert summary["run"]["evaluator"] == "joined from the runs whole, beside"
    whole = json.loads((home / "whole" / "summary.json").read_text(encoding="utf-8"))
    (alone,) = whole["defenses"]
    assert alone["counts"] in [each["counts"] for each in summary["defenses"]]
    assert "the defense 'mine' is in both and in whole" in refused(
        path, home / "whole", out=tmp_path / "out"
    )
    fewer = measured(home / "beside.yaml", tmp_path / "fewer", limit=60)
    assert "fewer is of other data than whole" in refused(
        home / "whole", fewer, out=tmp_path / "out"
    )


@pytest.mark.slow
def test_errors_that_were_asked_about_again_are_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage on one machine leaves its trace in the merged run, and no figure stands on it."""
    monkeypatch.chdir(tmp_path)
    Path("down").touch()
    measured(home / "bench.yaml", tmp_path / "s1", limit=120, shard="1/4")
    Path("down").unlink()
    measured(home / "bench.yaml", tmp_path / "s1", limit=120, shard="1/4", retry_errors=True)
    path = merged(tmp_path / "s1", *shards(home)[1:], out=tmp_path / "merged")
    with RecordReader(path / "records.sqlite") as reader:
        status = reader.status()
    assert status.retried > 0
    assert verify(path).holds
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    whole = json.loads((home / "whole" / "summary.json").read_text(encoding="utf-8"))
    assert summary["defenses"] == whole["defenses"]


@pytest.mark.slow
def test_a_killed_merge_loses_nothing(home: Path, tmp_path: Path) -> None:
    """Whenever it is killed, the shards are whole and the same command succeeds."""
    typed = words("merge", *shards(home), "-o", "merged")
    with subprocess.Popen(typed, cwd=tmp_path, stdout=subprocess.DEVNULL) as child:
        beside, out = tmp_path / ".merged.merging", tmp_path / "merged"
        while not (beside / "records.sqlite").exists() and child.poll() is None:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
    assert not out.exists() or verify(out).holds
    if not out.exists():
        done = guardmark("merge", *shards(home), "-o", "merged", cwd=tmp_path)
        assert done.code == 0, done.err
    assert not beside.exists()
    assert (out / "summary.json").read_bytes() == (home / "whole" / "summary.json").read_bytes()
    assert all(verify(shard).holds for shard in shards(home))


@pytest.mark.slow
def test_a_journey_through_the_command_line(tmp_path: Path) -> None:
    """Two shards, one merge, one verification."""
    for number in (1, 2):
        done = guardmark("run", "--limit", "40", "--shard", f"{number}/2", cwd=tmp_path)
        assert done.code == 0, done.err
    parts = sorted((tmp_path / "runs" / "built-in").iterdir())
    assert [path.name[-13:] for path in parts] == ["-shard-1-of-2", "-shard-2-of-2"]
    done = guardmark("merge", *parts, "-o", "merged", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Merged 2 runs with 200 records into merged" in done.err
    assert guardmark("verify", "merged", cwd=tmp_path).code == 0
    again = guardmark("merge", *parts, "-o", "merged", cwd=tmp_path)
    assert again.code == 7
    assert "already exists" in again.err
    slip = guardmark("run", "--shard", "3/2", cwd=tmp_path)
    assert slip.code == 2
    assert "numbered from 1 to 2" in slip.err
