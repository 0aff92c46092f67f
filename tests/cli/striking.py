"""A command that somebody ends at a moment of the reader's choice."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.journeys.command_line import Done

if TYPE_CHECKING:
    from pathlib import Path

_STRUCK = """\
import os, signal, sys

event, part, *words = sys.argv[1:]
left = [1]

def hook(what, about):
    if left and what == event and str(about[0]).endswith(part):
        left.clear()
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[1:] = words
from guardmark.cli import main
sys.addaudithook(hook)
main()
"""


def struck(event: str, part: str, *words: str, cwd: Path) -> Done:
    """Type a command that gets Ctrl-C once, when it first imports, opens or connects to a thing."""
    done = subprocess.run(
        [sys.executable, "-c", _STRUCK, event, part, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)
