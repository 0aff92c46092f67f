"""`guardmark watch`: live traffic, labels that come late, limits that are shown to be broken."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.journeys.command_line import guardmark

from guardmark.analysis.live import LiveCounts, parse_line
from guardmark.cli.commands import build
from guardmark.core.outcome import Outcome

Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[Any]]
LIMIT = ("--limit", "fpr<=0.02")


def watched(path: Path, *words: str) -> Result:
    """Watch a file in this process."""
    return CliRunner().invoke(build(), ["watch", str(path), *words], standalone_mode=False)


def figures(result: Result) -> dict[str, Any]:
    """What was printed as JSON last."""
    view: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return view


def rates(result: Result) -> dict[str, tuple[int, int]]:
    """Counts behind each rate of the one defense of a stream."""
    (defense,) = figures(result)["defenses"]
    return {
        each["name"]: (each["live"]["successes"], each["live"]["trials"])
        for each in defense["rates"]
    }


def written(path: Path, rows: Iterable[object]) -> Path:
    """Write rows as lines of JSON."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def benign(blocked: int, of: int) -> list[dict[str, str]]:
    """Audited benign decisions in a fixed random order."""
    rows = [
        {"id": f"b{at}", "outcome": "block" if at < blocked else "allow", "label": "benign"}
        for at in range(of)
    ]
    random.Random(7).shuffle(rows)
    return rows


def test_a_label_finds_its_decision_whenever_it_comes(tmp_path: Path) -> None:
    """Before it, with it, after it; without one a decision counts for the block rate alone."""
    rows = [
        {"id": 1, "label": "attack"},
        {"id": 1, "outcome": "allow", "defense": "guard", "time": "2026-11-23T08:00:00Z"},
        {"id": 2, "outcome": "block", "defense": "guard", "label": "benign"},
        {"id": 3, "outcome": "allow", "defense": "guard"},
        {"id": 4, "outcome": "error", "defense": "guard"},
        {"id": 5, "outcome": "malformed", "defense": "guard", "time": "2026-11-23T09:00:00Z"},
        {"id": 3, "label": "benign"},
        {"id": 6, "label": "benign"},
    ]
    result = watched(written(tmp_path / "log", rows), "--json")
    assert result.return_value == 0
    assert rates(result) == {
        "blocked": (1, 3),
        "fpr": (1, 2),
        "asr": (1, 1),
        "malformed": (1, 5),
        "errors": (1, 5),
    }
    view = figures(result)
    assert {name: count for name, count in view["lines"].items() if count} == {
        "lines": 8,
        "waiting": 1,
    }


def test_of_two_decisions_the_first_counts_and_of_two_labels_the_last(tmp_path: Path) -> None:
    """Each is counted as what it is."""
    rows = [
        {"id": "a", "outcome": "block", "label": "benign"},
        {"id": "a", "outcome": "block"},
        {"id": "a", "outcome": "allow"},
        {"id": "a", "label": "attack"},
    ]
    result = watched(written(tmp_path / "log", rows), "--json")
    assert rates(result) == {
        "blocked": (1, 1),
        "fpr": (0, 0),
        "asr": (0, 1),
        "malformed": (0, 1),
        "errors": (0, 1),
    }
    counted = figures(result)["lines"]
    assert [counted[each] for each in ("repeated", "contradicted", "relabelled")] == [1, 1, 1]


def test_lines_that_cannot_be_used_end_nothing(tmp_path: Path) -> None:
    """Torn, deep, long, of another shape, or of one defense too many."""
    path, fine = tmp_path / "log", b'{"id": 1, "outcome": "block"}\n'
    odd = (
        *(b"0\n", b"[]\n", b'{"id": null, "outcome": "block"}\n', b'{"id": 1, "outcome": []}\n'),
        *(b'{"id": 2, "outcome": "maybe"}\n', b'{"outcome": "block"}\n', b"\xff\xfe\x00\n"),
        *(b'{"id": 2, "label": "unsure"}\n', b"[" * 100_000 + b"\n", b"9" * 10_000 + b"\n"),
        b'{"id": 2, "outcome": "block", "more": "' + b"x" * 3_000_000 + b'"}\n',
    )
    path.write_bytes(fine + b"".join(odd) + b'{"id": 3, "outcome": "blo')
    assert figures(watched(path, "--json"))["lines"]["unreadable"] == len(odd) + 1
    path.write_bytes(b'{"id": "\\ud800", "outcome": "block"}\n{"id": 3, "outcome": "allow"}')
    assert rates(watched(path, "--json"))["blocked"] == (1, 2)
    rows = [{"id": at, "defense": f"d{at}", "outcome": "allow"} for at in range(120)]
    view = figures(watched(written(path, [*rows, {"id": 1, "label": "benign"}]), "--json"))
    assert (len(view["defenses"]), view["lines"]["unreadable"]) == (100, 20)


def test_hostile_words_reach_no_terminal(tmp_path: Path) -> None:
    """Names and times are a stranger's."""
    bad = "\x1b]0;x\x07\n::set-output name=x::y\u202e"
    row = {"id": bad, "defense": bad, "outcome": "allow", "time": bad}
    result = watched(written(tmp_path / "log", [row]))
    assert not {"\x1b", "\x07", "\u202e"} & set(result.output)
    assert not any(line.startswith("::") for line in result.output.splitlines())


def test_a_limit_is_broken_only_where_that_is_shown(tmp_path: Path) -> None:
    """Three of a hundred may be one; thirty of a thousand are not: the exit code says which."""
    few = watched(written(tmp_path / "log", benign(3, 100)), *LIMIT)
    assert few.return_value == 0
    assert "fpr        3.0 %" in few.output
    assert "limit 2 %" in few.output
    many = watched(written(tmp_path / "log", benign(60, 1000)), *LIMIT)
    assert many.return_value == 1
    assert "BROKEN traffic: fpr above 2 %, shown after" in many.output
    within = watched(written(tmp_path / "log", benign(15, 1000)), *LIMIT)
    assert within.return_value == 0


def test_what_was_once_shown_stays_shown(tmp_path: Path) -> None:
    """A limit that broke and recovered has been broken."""
    rows = benign(60, 600) + [{**row, "id": row["id"] + "+"} for row in benign(0, 6000)]
    result = watched(written(tmp_path / "log", rows), *LIMIT, "--json")
    assert result.return_value == 1
    (broken,) = figures(result)["broken"]
    assert broken["after_lines"] < 600
    assert rates(result)["fpr"] == (60, 6600)


def test_an_audit_that_looks_at_blocks_breaks_no_limit(tmp_path: Path) -> None:
    """Whoever audits all blocks and few of the rest sees an FPR that the traffic has not."""
    rows = [
        {"id": at, "outcome": "block" if at % 50 == 0 else "allow"}
        | ({"label": "benign"} if at % 50 == 0 or at % 500 == 1 else {})
        for at in range(5000)
    ]
    result = watched(written(tmp_path / "log", rows), *LIMIT)
    assert result.return_value == 0
    assert "labelled are 100.0 % [" in result.output
    assert "fpr and asr are not those of the traffic, and break no limit" in result.output


def test_drift_is_shown_against_a_run(tmp_path: Path) -> None:
    """The records of the run itself do not drift from it; a defense that blocks all does."""
    path = tmp_path / "bench.yaml"
    path.write_text(
        "version: 1\ndata: [{builtin: core}]\nreport: [json]\n"
        "defenses: {words: {type: pattern, keywords: [ignore]}}\n",
        encoding="utf-8",
    )
    made = CliRunner().invoke(build(), ["run", str(path), "-o", str(tmp_path / "run"), "--json"])
    (run,) = json.loads(made.stdout)["defenses"]
    against = ("--against", str(tmp_path / "run"))
    lines = tmp_path / "run" / "results.jsonl"
    same = watched(lines, *against, "--json")
    assert rates(same)["fpr"] == (
        run["rates"]["false_positive_rate"]["successes"],
        run["rates"]["false_positive_rate"]["trials"],
    )
    (words,) = figures(same)["defenses"]
    assert [each["is_drift_shown"] for each in words["rates"]] == [False] * 5
    rows = [{"id": at, "defense": "words", "outcome": "block"} for at in range(100)]
    other = watched(written(tmp_path / "log", rows), *against)
    assert "in the run: drift shown" in other.output


def test_a_limit_that_is_none_is_refused() -> None:
    """With the rates that there are."""
    for word in ("fpr<=2", "fpr<0.1", "tpr<=0.1", "fpr<=0"):
        result = CliRunner().invoke(build(), ["watch", "-", "--limit", word], input="")
        assert result.exit_code == 2
        assert "blocked, fpr, asr, malformed, errors" in result.output


def test_an_id_that_is_forgotten_is_not_joined() -> None:
    """Memory does not grow with the stream: the last ids are known, and a label may find none."""
    counts = LiveCounts(remembered=5)
    rows = [{"id": at, "outcome": "block"} for at in range(20)]
    for row in (*rows, {"id": 19, "label": "benign"}, {"id": 3, "label": "benign"}):
        counts.take(parse_line(json.dumps(row).encode()))
    assert counts.rows == {"traffic": [[0, 1, 0, 0], [0, 0, 0, 0], [0, 19, 0, 0]]}
    assert counts.notes["waiting"] == 1


OUTCOMES = [each.value for each in Outcome]
LINES = st.fixed_dictionaries(
    {"id": st.integers(0, 5), "defense": st.sampled_from("ab")},
    optional={"outcome": st.sampled_from(OUTCOMES), "label": st.sampled_from(["benign", "attack"])},
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=40))
def test_first_decisions_and_last_labels_count_in_any_order(rows: list[dict[str, Any]]) -> None:
    """However late labels come, and however often a line is sent again."""
    counts, labels, decided = LiveCounts(), dict[Any, str](), dict[Any, str]()
    for row in rows:
        counts.take(parse_line(json.dumps(row).encode()))
        if "outcome" in row:
            decided.setdefault((row["defense"], row["id"]), row["outcome"])
        if "label" in row:
            labels[row["id"]] = row["label"]
    found = Counter[tuple[str, str | None, str]]()
    for name, table in counts.rows.items():
        for side, row_of_label in zip(("benign", "attack", None), table, strict=True):
            for outcome, count in zip(OUTCOMES, row_of_label, strict=True):
                found[name, side, outcome] += count
    told = Counter((name, labels.get(key), said) for (name, key), said in decided.items())
    assert +found == told
    undecided = {row["id"] for row in rows} - {key for _, key in decided}
    assert counts.notes["waiting"] == len(undecided)


@pytest.mark.slow
async def test_a_broken_limit_is_posted_once(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address stands in a variable and nowhere in what is printed; its failure is told."""
    posted = []

    async def takes(request: web.Request) -> web.Response:
        posted.append(await request.json())
        return web.Response(status=200 if len(posted) != 1 else 404)

    server = await serve(takes)
    monkeypatch.setenv("ALARM", f"{server.url}/hooks/very-secret-path")
    path = written(tmp_path / "log", benign(90, 1000))
    words = ("watch", path, *LIMIT, "--webhook", "ALARM")
    done = await asyncio.to_thread(guardmark, *words, cwd=tmp_path)
    assert done.code == 1
    assert "The webhook took nothing" in done.err
    assert "very-secret" not in done.out + done.err
    assert len(posted) == 2
    assert posted[0] == posted[1]
    assert (posted[1]["name"], posted[1]["defense"], posted[1]["limit"]) == ("fpr", "traffic", 0.02)
    missing = await asyncio.to_thread(guardmark, *words[:-1], "NOT_THERE", cwd=tmp_path)
    assert missing.code == 2
    assert "NOT_THERE, which is not set" in missing.err


@pytest.mark.slow
async def test_a_webhook_that_is_down_holds_up_the_stream_less_and_less(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each failure it is tried after twice as many lines, and once more at the end."""
    posted = []

    async def is_down(request: web.Request) -> web.Response:
        posted.append(await request.read())
        return web.Response(status=404)

    server = await serve(is_down)
    monkeypatch.setenv("ALARM", server.url)
    path = written(tmp_path / "log", benign(900, 6400))
    words = ("watch", path, *LIMIT, "--webhook", "ALARM")
    done = await asyncio.to_thread(guardmark, *words, cwd=tmp_path)
    assert done.code == 1
    assert 3 <= len(posted) <= 8  # at 100, 200, 400 ... lines at the earliest, and at the end


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stream_is_read_as_it_comes_and_ends_with_its_table(number: int) -> None:
    """A line that is torn waits for its end; a signal ends in order."""
    words = ["-m", "guardmark", "watch", "-", "--json", "--every", "1"]
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        source, stream = process.stdin, process.stdout
        assert source is not None
        assert stream is not None

        def decided() -> int:
            (defense,) = json.loads(stream.readline())["defenses"]
            return int(defense["rates"][-1]["live"]["trials"])

        for at in range(3):
            for piece in (f'{{"id": {at}, ', '"outcome": "block"}\n'):
                source.write(piece)
                source.flush()
            assert decided() == at + 1
        process.send_signal(number)
        assert decided() == 3
        assert stream.read() == ""
        source.close()
    assert process.returncode == 0


@pytest.mark.slow
def test_a_stream_ends_at_the_first_broken_limit() -> None:
    """Without a webhook the exit code is the alarm, so it does not wait for more."""
    words = ["-m", "guardmark", "watch", "-", *LIMIT]
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for row in benign(60, 600):
            process.stdin.write(f"{json.dumps(row)}\n")
        process.stdin.flush()
        assert process.wait() == 1
        assert "BROKEN" in process.stdout.read()
        process.stdin.close()


def test_a_long_line_is_one_line(tmp_path: Path) -> None:
    """At, and beside, whole megabytes; what follows it is read."""
    path, end = tmp_path / "log", b'{"id": 1, "outcome": "block"}\n'
    for length in (0, 1, 2, 3_000_000):
        for around in (-1, 0, 1):
            long = b"x" * max(1, (length if length > 2 else length << 20) + around) + b"\n"
            path.write_bytes(long + end)
            counted = figures(watched(path, "--json"))["lines"]
            assert (counted["lines"], counted["unreadable"]) == (2, 1)
            assert rates(watched(path, "--json"))["blocked"] == (1, 1)


def test_a_stream_without_a_line_says_so(tmp_path: Path) -> None:
    """Silence would read as all is well."""
    (tmp_path / "log").write_bytes(b"\n\n")
    assert watched(tmp_path / "log").stdout.split("\n") == ["No line was read.", "", ""]


def test_a_stream_that_was_closed_has_no_line() -> None:
    """Whoever started the command gave it no standard input: that is no fault of ours."""
    command = 'exec "$0" -m guardmark watch - --limit "fpr<=0.05" <&-'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "No line was read.")


def test_an_empty_line_is_no_line(tmp_path: Path) -> None:
    """What logs put between records, and at their end, is neither counted nor unreadable."""
    (tmp_path / "log").write_bytes(b'\n  \r\n{"id": 1, "outcome": "block"}\n\n\n\t\n')
    view = figures(watched(tmp_path / "log", "--json"))
    assert (view["lines"]["lines"], view["lines"]["unreadable"]) == (1, 0)
