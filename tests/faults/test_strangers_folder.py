"""What every command does with a run folder from a stranger: nothing that the folder asks for."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.faults.strangers import FOLDERS, JUDGE, MODEL, MODULE, PRIVATE, SOURCE, VARIABLE, Folder
from tests.faults.watched import Watcher
from tests.journeys.command_line import few_rows, write_rows
from tests.journeys.test_signature import KEY
from tests.view.site_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S: Final = 30.0  # a hang, on a machine that others use
SECRET: Final = "the-secret-of-the-victim"  # noqa: S105 - made up
COMMANDS: Final = (
    ("verify", "out"),
    ("verify", "out", "--json", "--public-key", "key.pub"),
    ("show", "out"),
    ("show", "out", "--unsafe", "--full"),
    ("compare", "out"),
    ("compare", "out", "mine", "--markdown"),
    ("gate", "out"),
    ("gate", "mine", "--policy", "limits.yaml", "--baseline", "out", "--junit", "gate.xml"),
    ("stability", "out", "--seeds", "2"),
    ("audit", "out", "--count", "3"),
    ("audit", "out", "--what", "bypasses", "-o", "bypasses.csv"),
    ("export", "out", "--to", "jsonl,csv,svg,inspect,minorbench,parquet"),
    ("data", "check", "out/results.jsonl"),
    ("data", "diff", "out", "mine"),
    ("import", "inspect", "out", "-o", "imported"),
    ("judge", "out"),
    ("judge", "out", "--quality"),
    ("judge", "out", "--config", "judges.yaml", "--layer", "mine"),
    ("adapt", "out", "--budget", "4", "--canaries", "0"),
    ("adapt", "out", "--budget", "4", "--config", "bench.yaml"),
    ("merge", "out", "mine", "-o", "joined"),
    ("report", "out", "--guarantee", "fpr<=0.5"),
    ("report", "out", "mine"),
    ("adapt", "out", "--budget", "4", "--canaries", "0", "--trust"),
    ("adapt", "out", "--budget", "4", "--canaries", "0", "--replay", "out/trace.jsonl"),
    ("adapt", "bench.yaml", "-o", "out", "--budget", "4"),
    ("judge", "out", "--human-labels", "labels.csv", "--layer", "people"),
    ("judge", "out", "--as-headline", "run"),
    ("watch", "out/results.jsonl", "--limit", "fpr<=0.5"),
    ("watch", "stream.jsonl", "--against", "out"),
    ("import", "minorbench", "out", "-o", "imported"),
    ("data", "stats", "out/results.jsonl", "--open-categories"),
    ("matrix", "matrix.yaml", "-o", "."),
    ("run", "bench.yaml", "-o", "out"),
    ("run", "bench.yaml", "-o", "out", "--fresh"),
)
"""All that take a run folder, alone, beside a run of the victim's, with settings of the victim's."""

JUDGES: Final = f"{JUDGE.lstrip()}run: {{seed: 1}}\n"
WITH_THEM: Final = {
    "judges.yaml": JUDGES,
    "limits.yaml": "{asr_upper: 1, regression_margin: 0.5}\n",
    "labels.csv": "layer,id,label\nrun,s1,safe\n",
    "stream.jsonl": '{"id": "a", "defense": "words", "outcome": "block", "label": "attack"}\n',
    "matrix.yaml": "global: {version: 1, data: [{path: data.jsonl}]}\n"
    "rows: [{id: out, defenses: {words: {type: pattern, patterns: [ignore]}}}]\n",
}
"""Files of the victim's that commands take beside the folder."""

REFUSALS: Final = {1, 2, 3, 5}
"""Exit codes of a person's mistake, an unreadable file, or a run that cannot say."""


_ANSWERS: Final = {
    "guard": "No",
    "judge": '{"label": "safe", "answer_mode": "help", "reasons": []}',
}
"""What the stranger's models say, by their names."""


class _Stranger(http.server.BaseHTTPRequestHandler):
    """Answers as any service would; every request is counted."""

    requests = 0

    def do_POST(self) -> None:
        type(self).requests += 1
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        message = {"role": "assistant", "content": _ANSWERS.get(asked.get("model"), "Certainly.")}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        answer = {"blocked": False, "model": "m", "choices": [choice], "usage": usage}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815 - as http.server calls it

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The stranger's service."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Stranger) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules that both machines can import from."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / f"{MODULE}.py").write_text(SOURCE, encoding="utf-8")
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the stranger works, and where the victim does."""

    server: str
    modules: Path
    plain: Path
    victim: Watcher

    def lay_out(self, theirs: Path, work: Path) -> Path:
        """Lay out what the victim has: the stranger's run, and data, settings and a run of theirs."""
        receive(theirs, work)
        for name in ("data.jsonl", "bench.yaml"):
            shutil.copy(self.plain.parent / name, work)
        (work / "key.pub").write_text(KEY, encoding="utf-8")
        for name, text in WITH_THEM.items():
            (work / name).write_text(text, encoding="utf-8")
        shutil.copytree(self.plain, work / "mine")
        return work

    def receive(self, folder: Folder, work: Path) -> Path:
        """Have the folder made, and return where it lies."""
        if folder.is_measured:
            work.mkdir()
            measure(folder, work, server=self.server, modules=self.modules)
        else:
            receive(self.plain, work)
        if folder.spoil is not None:
            folder.spoil(work / "out")
        return work / "out"


@pytest.fixture(scope="module")
def places(server: str, modules: Path, plain: Path, watcher: Watcher) -> Places:
    """Both machines."""
    return Places(server=server, modules=modules, plain=plain, victim=watcher)


@pytest.fixture(scope="module")
def watcher(modules: Path) -> Iterator[Watcher]:
    """The victim's machine."""
    env = {VARIABLE: SECRET, "PYTHONPATH": _with(modules)}
    forbidden = [MODULE, VARIABLE, PRIVATE]
    with Watcher(env=env, forbidden=forbidden, limit_s=LIMIT_S) as watching:
        yield watching


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> Path:
    """An honest run of a pipeline that was attacked and judged again, to be spoilt."""
    work = tmp_path_factory.mktemp("plain")
    pipeline = f"pipeline:\n  guards: [none, words]\n{MODEL}{JUDGE}"
    measure(Folder(pipeline=pipeline), work, server="", modules=modules)
    (work / "judges.yaml").write_text(JUDGES, encoding="utf-8")
    for words in (("adapt", "out", "--budget", "4"), ("judge", "out", "--config", "judges.yaml")):
        type_words(*words, cwd=work)
    return work / "out"


def type_words(*words: str, cwd: Path, **env: str) -> None:
    """Give one command on the stranger's machine."""
    typed = [sys.executable, "-m", "guardmark", *words]
    subprocess.run(
        typed, cwd=cwd, capture_output=True, timeout=60, check=False, env=os.environ | env
    )


def measure(folder: Folder, work: Path, *, server: str, modules: Path) -> None:
    """Measure as the stranger did: on a machine where everything the folder names is there."""
    write_rows(work / "data.jsonl", few_rows(12))
    shutil.copy(modules / f"{MODULE}.py", work)
    (work / "bench.yaml").write_text(folder.configuration(server), encoding="utf-8")
    (work / "sitecustomize.py").write_text(folder.machine, encoding="utf-8")
    paths = os.pathsep.join([str(work), _with(modules)])
    env = {**folder.env, "PYTHONPATH": paths if folder.machine else _with(modules)}
    type_words("run", "bench.yaml", "-o", "out", cwd=work, **env)
    assert (work / "out" / "records.sqlite").exists()


def _with(modules: Path) -> str:
    return os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)


def receive(run: Path, folder: Path) -> Path:
    """Lay a run where a victim found it, with nothing of the stranger's but the run."""
    folder.mkdir()
    (folder / PRIVATE).write_text("a private line", encoding="utf-8")
    shutil.copytree(run, folder / "out", symlinks=True, copy_function=_copy_what_can_be)
    return folder


def _copy_what_can_be(source: str, target: str) -> None:
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        subprocess.run(["cp", "--sparse=always", source, target], check=True)


@pytest.mark.slow
def test_pages_over_strangers_folders_answer(plain: Path, tmp_path: Path) -> None:
    """A hostile folder hangs no page, is no page, and leaves the others readable."""
    runs = tmp_path / "runs"
    spoilt = [name for name, folder in FOLDERS.items() if not folder.is_measured]
    for at, name in enumerate([*spoilt, ""]):
        (runs / str(at)).mkdir(parents=True)
        shutil.copytree(plain, runs / str(at) / "out")
        if (spoil := FOLDERS[name].spoil if name else None) is not None:
            spoil(runs / str(at) / "out")
    with serving(runs) as site:
        listed = set(re.findall(r'href="/run/([0-9a-f]+)', site.ask().text))
        assert len(listed) > 1
        for key in listed:
            for page in (f"run/{key}", f"report/{key}"):
                began = time.monotonic()
                answer = site.ask(page)
                assert time.monotonic() - began < LIMIT_S
                assert answer.code in {200, 404, 409}
                assert "document.title = 'strange'" not in answer.text
                assert "private line" not in answer.text


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_no_command_does_what_a_strangers_folder_asks_for(
    name: str, tmp_path: Path, places: Places
) -> None:
    """No import, no connection, no variable read; each command ends in time, in plain words."""
    folder = FOLDERS[name]
    theirs = places.receive(folder, tmp_path / "theirs")
    before = _Stranger.requests
    done = [
        places.victim.carry_out(words, cwd=places.lay_out(theirs, tmp_path / f"mine-{at}"))
        for at, words in enumerate(COMMANDS)
    ]
    assert _Stranger.requests == before
    assert {each.words: each.events for each in done if each.events} == {}
    assert {each.words: each.seconds for each in done if each.code is None} == {}
    for each in done:
        assert each.code in {0, *REFUSALS}, (each.words, each.code, each.err)
        assert SECRET not in each.out + each.err
        assert "private line" not in each.out + each.err
        assert (tmp_path / f"mine-{done.index(each)}" / PRIVATE).exists(), each.words
        assert "Traceback" not in each.err
        assert not any(line.startswith("::") for line in (each.out + each.err).splitlines())
        assert not set(each.out + each.err) & {"\x1b", "\x07", "\0"}, each.words
    verified = [each.code for each in done if each.words[0] == "verify"]
    signed = [each.code for each in done if "--public-key" in each.words]
    assert 0 not in signed, "a stranger cannot sign with the victim's key"
    if folder.verifies is False:
        assert 0 not in verified
