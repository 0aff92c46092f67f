"""The loop of a run is the one its configuration asks for, and measures the same."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from guardmark.engine.execution.process import run_on_loop


async def _module_of_loop() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_python_s_own_loop_is_used_where_it_is_asked_for() -> None:
    """Nobody needs another library for a measurement."""
    assert run_on_loop(_module_of_loop(), uvloop=False) == "asyncio"


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not exist for Windows")
def test_uvloop_is_used_where_it_is_asked_for() -> None:
    """A key of the configuration that changes nothing would be a lie."""
    assert run_on_loop(_module_of_loop(), uvloop=True) == "uvloop"


@pytest.mark.parametrize(("hidden", "module"), [("", "uvloop"), ("uvloop", "asyncio")])
@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not exist for Windows")
def test_without_a_word_uvloop_is_used_where_it_is(hidden: str, module: str) -> None:
    """Where it cannot be imported, Python's own loop does the same work."""
    program = (
        f"import asyncio, sys; sys.modules.update({{n: None for n in {hidden!r}.split()}})\n"
        "from guardmark.engine.execution.process import run_on_loop\n"
        "async def work(): return type(asyncio.get_running_loop()).__module__.partition('.')[0]\n"
        "print(run_on_loop(work(), uvloop=None))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == module


def test_without_the_library_the_error_names_it() -> None:
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
    assert "pip install uvloop" in done.stderr
    assert "begun" not in done.stdout
    assert "never awaited" not in done.stderr
