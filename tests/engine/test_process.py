"""The loop of a run is the one its configuration asks for, and measures the same."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from guardmark.engine.execution.process import run_on_loop


async def _module_of_loop() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_python_s_own_loop_is_the_default() -> None:
    """Nobody needs another library for a measurement."""
    assert run_on_loop(_module_of_loop(), uvloop=False) == "asyncio"


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not exist for Windows")
def test_uvloop_is_used_where_it_is_asked_for() -> None:
    """A key of the configuration that changes nothing would be a lie."""
    assert run_on_loop(_module_of_loop(), uvloop=True) == "uvloop"


def test_without_the_library_the_error_names_the_extra() -> None:
    """In a process that cannot import it, nothing of the work is begun."""
    program = (
        "import sys; sys.modules['uvloop'] = None\n"
        "from guardmark.engine.execution.process import run_on_loop\n"
        "async def work(): print('begun')\n"
        "run_on_loop(work(), uvloop=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert "ConfigError" in done.stderr
    assert "pip install 'guardmark[uvloop]'" in done.stderr
    assert "begun" not in done.stdout
    assert "never awaited" not in done.stderr
