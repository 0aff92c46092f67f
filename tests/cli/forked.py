"""Commands in processes of their own, forked from one that has everything loaded: quick to start.

`python -m tests.cli.forked` is that process. It reads a command a line, carries it out in a child
and answers with what became of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).resolve().parents[2]
_NAP_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code; None where it was killed because it did not end in time.
        out: What it printed.
        err: What it told beside that.
        seconds: CPU time of it, and of what it started.
        megabytes: The most memory it held.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    megabytes: float


class Forked:
    """The process that has everything loaded."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forked"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
        )

    def __enter__(self) -> Self:
        """Be there while a block runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def run(self, words: Sequence[str], *, cwd: Path, most_s: float = 60.0) -> Ended:
        """Carry out a command; one that does not end in time is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"words": list(words), "cwd": str(cwd), "most_s": most_s}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def _carry_out(words: list[str], cwd: str, most_s: float) -> Ended:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _become(words, cwd, out.fileno(), err.fileno())
        until = time.monotonic() + most_s
        is_late = False
        while True:
            ended, status, usage = os.wait4(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > until and not is_late:
                is_late = True
                os.killpg(child, signal.SIGKILL)
            time.sleep(_NAP_S)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(100_000).decode("utf-8", "replace"))
    return Ended(
        code=None if is_late else os.waitstatus_to_exitcode(status),
        out=texts[0],
        err=texts[1],
        seconds=usage.ru_utime + usage.ru_stime,
        megabytes=usage.ru_maxrss / 1024,
    )


def _become(words: list[str], cwd: str, out: int, err: int) -> None:
    """Be the command: streams, folder and process group of its own, and no way back."""
    from guardmark.cli import main

    code = 1
    try:
        os.setsid()
        os.chdir(cwd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, target in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(number, target)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.argv = ["guardmark", *words]
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:  # noqa: BLE001 - the parent is told, whatever it was
        import traceback

        traceback.print_exc()
        code = 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    import guardmark.cli.commands

    guardmark.cli.commands.build()
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    for line in sys.stdin:
        asked = json.loads(line)
        ended = _carry_out(asked["words"], asked["cwd"], asked["most_s"])
        answers.write(json.dumps(asdict(ended)) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
