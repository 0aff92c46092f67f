"""A defense in a process of its own: whatever the process does, one sample pays at most."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from guardmark.config.settings import BuildContext
from guardmark.core.errors import BadSettings, ConfigError
from guardmark.core.outcome import Decision, ErrorKind, Outcome
from guardmark.core.sample import Prompt, View
from guardmark.defenses.command.settings import CommandSettings
from guardmark.defenses.function import PythonSettings
from guardmark.defenses.guard import as_guard
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Build = Callable[..., Any]

ANSWER = """\
import json, os, sys, time

def say(**fields):
    print(json.dumps(fields), flush=True)

asked = 0
for line in sys.stdin:
    question = json.loads(line)
    number, text = question["id"], question["text"]
    asked += 1
    {body}
    say(id=number, blocked="attack" in text)
"""


@pytest.fixture
async def build(tmp_path: Path) -> AsyncIterator[Build]:
    """Build a command defense around the body of a loop, or around a whole program."""
    built: list[Any] = []

    def make(body: str = "pass", *, program: str = "", **settings: Any) -> Any:
        (tmp_path / "worker.py").write_text(program or ANSWER.replace("{body}", body))
        usual = {"command": [sys.executable, "worker.py"], "timeout_s": 20}
        built.append(_built(CommandSettings.model_validate(usual | settings), tmp_path))
        return built[-1]

    yield make
    for defense in built:
        await defense.close()


def _built(settings: Any, folder: Path) -> Any:
    context = BuildContext(folder=folder, seed=1, services=None, defenses={})
    return settings.build("mine", context)


async def ask(defense: Any, *texts: str) -> list[Decision]:
    """Ask one after the other, or as one batch."""
    prompts = [Prompt.of_text(text) for text in texts]
    if hasattr(defense, "decide_batch"):
        decisions: list[Decision] = await defense.decide_batch(prompts)
        return decisions
    return [await defense.decide(prompt) for prompt in prompts]


def outcomes(decisions: list[Decision]) -> list[str]:
    """What was decided, with the kind of an error."""
    return [d.error_kind or d.outcome for d in decisions]


def message(decision: Decision) -> str:
    """What an error or a malformed answer says."""
    assert decision.evidence is not None
    return decision.evidence.message


@pytest.mark.parametrize("batch", [1, 3])
async def test_a_process_answers(build: Build, batch: int) -> None:
    """One at a time or in batches, and its start is no part of the latency."""
    program = "import time; time.sleep(1.2)\n" + ANSWER.replace("{body}", "pass")
    decisions = await ask(build(program=program, batch=batch), "attack", "hello", "an attack")
    assert outcomes(decisions) == ["block", "allow", "block"]
    assert all(d.latency_ns is not None and d.latency_ns < 1e9 for d in decisions)
    assert {d.amortised for d in decisions} == {batch > 1}


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("if 'bad' in text: sys.exit(3)", "crash", "exit code 3"),
        ("if 'bad' in text: os.kill(os.getpid(), 11)", "crash", "SIGSEGV"),
        ("if 'bad' in text: raise KeyError('of mine')", "crash", "KeyError: 'of mine'"),
        ("if 'bad' in text: print('loading ...', flush=True)", "contract", "loading ..."),
        ("if 'bad' in text: print('[1]', flush=True)", "contract", "no JSON object"),
        ("if 'bad' in text: say(id=number + 7, blocked=True)", "contract", "another id"),
        ("if 'bad' in text: print('x' * 2_000_000, flush=True)", "contract", "1,048,576"),
        pytest.param(
            *("if 'bad' in text: time.sleep(60)", "timeout", "within 1 s"), marks=pytest.mark.slow
        ),
        ("if 'bad' in text: say(id=number, error='no locale'); continue", "crash", "no locale"),
        ("if 'bad' in text: sys.exit(0)", "crash", "exit code 0, before its input did"),
        (
            "if 'bad' in text: print('{\"id\":', end='', flush=True); sys.exit(4)",
            *("crash", "wrote '{\"id\":' without an end of the line"),
        ),
    ],
)
@pytest.mark.parametrize("batch", [1, 3])
async def test_one_bad_answer_is_one_error(
    build: Build, batch: int, *, body: str, kind: str, said: str
) -> None:
    """The process is started again, and its neighbours get their answers."""
    defense = build(body, batch=batch, timeout_s=1 if kind == "timeout" else 20)
    decisions = await ask(defense, "attack", "bad", "hello")
    assert outcomes(decisions) == ["block", kind, "allow"]
    assert said in message(decisions[1])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{'score': 87}", "score_range"),
        ("{'flag': True}", "nothing that can be read"),
        ("{'blocked': True, 'is_safe': True}", "contradict"),
        ("{'decision': 'perhaps'}", "expected block or allow"),
        ("{'score': 0.7}", "no threshold"),
    ],
)
async def test_an_answer_that_says_nothing_is_malformed(
    build: Build, answer: str, said: str
) -> None:
    """And the process goes on: it did answer."""
    defense = build(f"say(id=number, **{answer}); continue")
    decisions = await ask(defense, "one", "two")
    assert outcomes(decisions) == ["malformed", "malformed"]
    assert said in message(decisions[0])


async def test_scores_of_another_range_are_mapped(build: Build) -> None:
    """To [0, 1], where the threshold stands too."""
    defense = build(
        "say(id=number, score=len(text)); continue", score_range=[0, 100], threshold=0.5
    )
    decisions = await ask(defense, "x" * 50, "x" * 49, "x" * 101)
    assert outcomes(decisions) == ["block", "allow", "malformed"]
    assert [d.score for d in decisions] == [0.5, 0.49, None]


async def test_every_text_arrives_character_for_character(build: Build) -> None:
    """Control characters, ends of lines of every kind, half characters."""
    texts = [
        "",
        "a\nb\r\n\u2028\x00\x1b[31m",
        "\ud800 half",
        "\U0001f3f4\U000e0067",
        '"}\\ {"id": 9}',
    ]
    defense = build("say(id=number, blocked=True, reason=ascii(text)); continue", batch=5)
    decisions = await ask(defense, *texts)
    assert [d.evidence.reason for d in decisions if d.evidence] == [ascii(t) for t in texts]


async def test_a_banner_at_start_is_ignored(build: Build) -> None:
    """Also one that looks like JSON, and a line of ready."""
    banner = 'print(\'Loading 100%\')\nprint(\'[1]\')\nprint(\'{"level": "info", "id": "a7"}\')\n'
    program = banner + "print('{\"ready\": true}')\n" + ANSWER.replace("{body}", "pass")
    assert outcomes(await ask(build(program=program), "attack")) == ["block"]
    assert outcomes(await ask(build(program=program, warm_up=None), "attack")) == ["block"]


async def test_a_program_without_its_interpreter_is_told_from_one_that_is_missing(
    tmp_path: Path,
) -> None:
    """As after an environment was moved: the file is there, what its first line names is not."""
    program = tmp_path / "guard"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    defense = _built(CommandSettings(command=[str(program)]), tmp_path)
    with pytest.raises(ConfigError, match="interpreter that its first line names does not exist"):
        await defense.start()


async def test_a_process_that_cannot_start_is_given_up(build: Build) -> None:
    """After three tries, with its last words, in which nothing can act on a terminal."""
    program = "import sys; open('tries', 'a').write('x'); sys.exit('no model \\x1b[31m here')"
    defense = build(program=program)
    with pytest.raises(ConfigError, match=r"3 times in a row.*exit code 1.*no model .U.001B"):
        await defense.start()
    assert outcomes(await ask(defense, "one", "two")) == ["crash", "crash"]
    assert (Path(defense.capabilities.files[0]).parent / "tries").read_text() == "xxx"


async def test_a_process_that_prints_no_answers_is_quoted_with_the_next_step(build: Build) -> None:
    """What it printed in place of the answer to the warm-up text, and how to try it by hand."""
    program = "import sys; print('rubbish', flush=True); sys.stdin.read()"
    defense = build(program=program, start_timeout_s=2)
    with pytest.raises(ConfigError, match=r"it printed 'rubbish'\.\nNext: start it by hand"):
        await defense.start()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["no", '{"blocked": false}', '{"id": "0", "blocked": false}'])
async def test_a_process_that_answers_with_wrong_lines_is_told_long_before_its_time(
    build: Build, line: str
) -> None:
    """Each question brings a line that is no answer: nothing better will come."""
    defense = build(f"print({line!r}, flush=True); continue", start_timeout_s=600)
    with pytest.raises(ConfigError) as caught:
        await asyncio.wait_for(defense.start(), 100)
    assert f"no answer to 3 questions, but lines such as: {line!r}" in str(caught.value)


@pytest.mark.slow
async def test_a_banner_before_a_slow_first_answer_is_no_wrong_answer(build: Build) -> None:
    """It loads when it is first asked, and is asked again meanwhile: both answers are awaited."""
    body = "asked == 1 and (print('loading', flush=True), time.sleep(4.5))"
    assert outcomes(await ask(build(body), "attack", "hello")) == ["block", "allow"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere its time has to run out")
@pytest.mark.parametrize("batch", [1, 3])
async def test_an_end_is_seen_although_a_child_holds_the_output_open(
    build: Build, batch: int
) -> None:
    """What it answered before counts; nobody waits for what cannot come."""
    start = "import subprocess; subprocess.Popen(['sleep', '60']); os._exit(3)"
    defense = build(f"\n    if 'bad' in text: {start}", batch=batch, timeout_s=600)
    decisions = await asyncio.wait_for(ask(defense, "attack", "bad", "hello"), 100)
    assert outcomes(decisions) == ["block", "crash", "allow"]
    assert "exit code 3" in message(decisions[1])


async def test_a_process_that_never_becomes_ready_is_given_up(build: Build) -> None:
    """It has its own time for that."""
    defense = build(program="import time; time.sleep(60)", start_timeout_s=0.3)
    with pytest.raises(ConfigError, match=r"no answer to the warm-up text within 0\.3 s"):
        await defense.start()


async def test_a_stateful_guard_gets_a_fresh_process_for_each_text(build: Build) -> None:
    """Or is told to forget."""
    body = "say(id=number, blocked=asked > 2); continue"  # the warm-up text is the first
    assert outcomes(await ask(build(body), *"abc")) == ["allow", "block", "block"]
    assert outcomes(await ask(build(body, restart_after=1), *"abc")) == ["allow"] * 3


async def test_a_guard_that_can_forget_is_told_to(build: Build) -> None:
    """Before each text; what it takes is no part of the latency."""
    program = ANSWER.replace(
        "    number, text",
        "    if 'reset' in question: say(reset=True); asked = 0; continue\n    number, text",
    ).replace("{body}", "say(id=number, blocked=asked > 1); continue")
    assert outcomes(await ask(build(program=program, reset=True), *"abc")) == ["allow"] * 3
    refuses = build("pass", reset=True)
    with pytest.raises(ConfigError, match="did not start"):
        await refuses.start()


async def test_several_processes_work_beside_each_other(build: Build) -> None:
    """As many as it has workers, and each answer comes back to who asked."""
    defense = build(
        "time.sleep(0.2); say(id=number, blocked=True, reason=f'{text} {os.getpid()}'); continue",
        workers=3,
    )
    decisions = await asyncio.gather(*(ask(defense, str(n)) for n in range(6)))
    said = [each[0].evidence.reason.split() for each in decisions if each[0].evidence]
    assert [text for text, _ in said] == list("012345")
    assert len({process for _, process in said}) == 3


async def test_memory_is_limited(build: Build) -> None:
    """A guard that takes too much is a crash of that text."""
    body = "held = bytearray(2 << 30) if 'big' in text else None"
    decisions = await ask(build(body, memory_mb=1024), "big", "attack")
    assert outcomes(decisions) == ["crash", "block"]
    assert "MemoryError" in message(decisions[0])


async def test_only_named_variables_are_passed(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the value of one that is named is kept out of messages."""
    monkeypatch.setenv("GM_NAMED", "sk-quite-a-secret")
    monkeypatch.setenv("GM_OTHER", "1")
    body = "say(id=number, blocked=True, reason=' '.join(n for n in os.environ if n[:3] == 'GM_')); continue"
    (decision,) = await ask(build(body, variables=["GM_NAMED"]), "x")
    assert decision.evidence is not None
    assert decision.evidence.reason == "GM_NAMED"
    program = "import os, sys; sys.exit(os.environ['GM_NAMED'])"
    defense = build(program=program, variables=["GM_NAMED"])
    with pytest.raises(ConfigError) as caught:
        await defense.start()
    assert "quite-a-secret" not in str(caught.value)
    assert "redacted" in str(caught.value)
    assert KNOWN.text("sk-quite-a-secret") == "[redacted]"


async def test_an_answer_that_repeats_a_key_is_stored_without_it(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, in hexadecimal digits, and behind the escapes of JSON."""
    monkeypatch.setenv("GM_NAMED", key := "sk/quite-a-secret+key")
    body = (
        "key = os.environ['GM_NAMED']; "
        "say(id=number, blocked=True, reason=f'{key} {key.encode().hex()}'); continue"
    )
    (decision,) = await ask(build(body, variables=["GM_NAMED"]), "x")
    assert decision.outcome is Outcome.BLOCK
    assert decision.evidence is not None
    assert decision.evidence.reason == "[redacted] [redacted]"
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in key)
    body = f"print('{{\"id\": ' + str(number) + ', \"blocked\": true, \"reason\": \"' + r'{escaped}' + '\"}}', flush=True); continue"
    (decision,) = await ask(build(body, variables=["GM_NAMED"]), "x")
    assert decision.evidence is not None
    assert decision.evidence.reason == "[redacted]"


async def test_what_it_prints_beside_its_answers_is_not_ours(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    """A hundred kilobytes on its stderr neither block it nor reach the terminal."""
    defense = build("sys.stderr.write('x' * 100_000)")
    assert outcomes(await ask(defense, *["attack"] * 5)) == ["block"] * 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("body", ["pass", "time.sleep(60)"])
async def test_closing_ends_the_processes(build: Build, body: str) -> None:
    """Those in a call as well, and what they started themselves."""
    start = "import subprocess; child = subprocess.Popen(['sleep', '60'])\n"
    program = start + ANSWER.replace(
        "{body}", f"open('pids', 'w').write(f'{{os.getpid()}} {{child.pid}}'); {body}"
    )
    ready = "print('{\"ready\": true}', flush=True)\n"
    defense = build(program=ready + program, warm_up=None)
    task = asyncio.ensure_future(ask(defense, "attack"))
    pids = Path(defense.capabilities.files[0]).with_name("pids")
    while not pids.exists() or len(pids.read_text().split()) < 2:  # noqa: ASYNC110 - a file tells
        await asyncio.sleep(0.01)
    if body == "pass":
        await task
    await defense.close()
    assert _end_within(10, [int(pid) for pid in pids.read_text().split()])
    assert outcomes(await task) in (["block"], ["crash"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs the signal of a parent's death")
def test_processes_die_with_us_also_when_we_are_killed(tmp_path: Path) -> None:
    """A process in a long call does not see that its input ended."""
    body = "open('pid', 'w').write(f'{os.getpid()} '); time.sleep(60)"
    (tmp_path / "worker.py").write_text(ANSWER.replace("{body}", body))
    (tmp_path / "asks.py").write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from guardmark.config.settings import BuildContext\n"
        "from guardmark.core.sample import Prompt\n"
        "from guardmark.defenses.command.settings import CommandSettings\n"
        "said = CommandSettings(command=[sys.executable, 'worker.py'])\n"
        "context = BuildContext(folder=Path('.'), seed=1, services=None, defenses={})\n"
        "asyncio.run(said.build('mine', context).decide(Prompt.of_text('x')))\n"
    )
    parent = subprocess.Popen([sys.executable, "asks.py"], cwd=tmp_path, env=os.environ)
    pid = tmp_path / "pid"
    while not pid.exists() or not pid.read_text().endswith(" "):
        assert parent.poll() is None
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert _end_within(10, [int(pid.read_text())])


def _end_within(seconds: float, pids: list[int]) -> bool:
    end = monotonic() + seconds
    while monotonic() < end:
        if not any(_is_alive(pid) for pid in pids):
            return True
    return False


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


def test_mistakes_are_found_before_anything_is_started(tmp_path: Path) -> None:
    """A program that is not there, a variable that is not set, settings that do not go together."""
    for settings, where, said in (
        ({"command": ["./guard"]}, "command", "does not exist"),
        ({"command": ["no-such-program-x"]}, "command", "not on the PATH"),
        ({"command": ["sh"], "variables": ["GM_NOT_SET"]}, "variables", "is not set"),
    ):
        with pytest.raises(BadSettings, match=said) as caught:
            _built(CommandSettings.model_validate(settings), tmp_path)
        assert caught.value.mistakes[0][0][0] == where
    for bad in (
        {"reset": True, "batch": 2},
        {"restart_after": 1, "batch": 2},
        {"score_range": [1, 1]},
    ):
        with pytest.raises(ValidationError):
            CommandSettings.model_validate({"command": ["sh"], **bad})


GUARD = """
from collections import namedtuple
from dataclasses import dataclass

Pair = namedtuple("Pair", "flagged score")

@dataclass
class Answer:
    is_safe: bool
    risk: float
    span: object = None

def boolean(text): return "attack" in text
def pair(text): return "attack" in text, 0.25
def named(text): return Pair("attack" in text, 0.25)
def words(text): return {"action": "deny" if "attack" in text else "pass", "score": 0.25, "spans": [1]}
def made(text): return Answer("attack" not in text, 0.25)
def broken(text): raise RuntimeError("no " + text)
async def later(text): return "attack" in text

class Guard:
    def evaluate(self, text):
        print("asked")
        return {"blocked": "attack" in text, "confidence": 0.9}

guard = Guard()
"""
SHAPES = ["boolean", "pair", "named", "words", "made", "later", "Guard", "guard"]


@pytest.mark.parametrize("where", [{}, {"interpreter": sys.executable}, {"env": "venv"}])
@pytest.mark.parametrize("shape", SHAPES)
async def test_answers_of_usual_shapes_are_read(
    tmp_path: Path, shape: str, where: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process and under another interpreter alike."""
    (tmp_path / "guard.py").write_text(GUARD)
    if "env" in where:
        bin_folder = tmp_path / "venv" / "bin"
        bin_folder.mkdir(parents=True)
        (bin_folder / "python").symlink_to(sys.executable)
    settings = PythonSettings.model_validate({"target": f"guard.py:{shape}", **where})
    defense = _built(settings, tmp_path)
    guard, decisions = as_guard(defense), list[Decision]()
    for text in ("attack", "hello"):
        decisions += await guard.decide_all([Prompt.of_text(text)])
    if where:
        await defense.close()
        assert capfd.readouterr().out == ""
    assert outcomes(decisions) == ["block", "allow"]
    scores = {**dict.fromkeys(("pair", "named", "words", "made"), 0.25), "Guard": 0.9, "guard": 0.9}
    assert {d.score for d in decisions} == {scores.get(shape)}


async def test_a_package_that_is_missing_elsewhere_is_named_with_the_next_step(
    tmp_path: Path,
) -> None:
    """Not by the middle of a traceback: which package, and for which interpreter."""
    settings = {"target": "no_such_package.guard:check", "interpreter": sys.executable}
    defense = _built(PythonSettings.model_validate(settings), tmp_path)
    with pytest.raises(ConfigError, match=r"named 'no_such_package'\. Next: install"):
        await defense.start()
    await defense.close()


async def test_a_function_elsewhere_that_raises_is_an_error_of_that_text(tmp_path: Path) -> None:
    """And one that is not there is a mistake."""
    (tmp_path / "guard.py").write_text(GUARD)
    there = {"interpreter": sys.executable}
    defense = _built(
        PythonSettings.model_validate({"target": "guard.py:broken", **there}), tmp_path
    )
    (decision,) = await ask(defense, "way")
    assert (decision.error_kind, message(decision)) == (ErrorKind.CRASH, "RuntimeError: no way")
    await defense.close()
    absent = _built(PythonSettings.model_validate({"target": "guard.py:absent", **there}), tmp_path)
    with pytest.raises(ConfigError, match="has no attribute 'absent'"):
        await absent.start()
    with pytest.raises(BadSettings, match="no Python interpreter"):
        _built(PythonSettings.model_validate({"target": "guard:f", "env": "nowhere"}), tmp_path)
    for bad in ({"workers": 2}, {"env": "a", "interpreter": "b"}, {"env": "a", "reset": True}):
        with pytest.raises(ValidationError):
            PythonSettings.model_validate({"target": "guard:f", **bad})


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
async def test_a_worker_in_another_language(tmp_path: Path) -> None:
    """The same lines."""
    (tmp_path / "worker.js").write_text(
        "const lines = require('readline').createInterface({ input: process.stdin });\n"
        "lines.on('line', (line) => {\n"
        "  const { id, text } = JSON.parse(line);\n"
        "  console.log(JSON.stringify({ id, blocked: text.includes('attack'), reason: text }));\n"
        "});\n"
    )
    settings = CommandSettings(command=["node", "worker.js"], view=View.TEXT)
    defense = _built(settings, tmp_path)
    decisions = await ask(defense, "attack \U0001f3f4", "hello \u2028")
    assert outcomes(decisions) == ["block", "allow"]
    assert [d.evidence.reason for d in decisions if d.evidence] == [
        "attack \U0001f3f4",
        "hello \u2028",
    ]
    assert json.loads(json.dumps(settings.model_dump(mode="json")))["command"][0] == "node"
    await defense.close()
    assert decisions[0].outcome is Outcome.BLOCK


async def test_a_program_that_prints_on_and_on_is_not_waited_for(build: Build) -> None:
    """Its first line is shown: 200 lines are no banner any more."""
    program = "import time\nfor n in range(900):\n    print('line', n, flush=True)\ntime.sleep(60)"
    defense = build(program=program, start_timeout_s=30)
    began = monotonic()
    with pytest.raises(ConfigError, match=r"lines and no answer, the first: 'line 0'"):
        await defense.start()
    assert monotonic() - began < 20


async def test_what_was_printed_first_is_shown_when_no_answer_comes(build: Build) -> None:
    """It names what started, which the last line may not."""
    program = "import sys\nprint('my guard 1.0', flush=True)\nfor line in sys.stdin: print('OK', flush=True)"
    defense = build(program=program, start_timeout_s=1)
    with pytest.raises(ConfigError, match=r"it printed 'my guard 1.0'"):
        await defense.start()
