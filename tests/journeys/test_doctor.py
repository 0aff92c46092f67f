"""`guardmark doctor CONFIG`: what each defense is like, before anything is spent."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import guardmark

from guardmark.app.preflight import examine_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Examine = Callable[[str], dict[str, bool | None]]

GUARDS = """
calls = {"locked": False, "turn": 0}

def sound(text):
    return "gnore" in text or "DAN" in text or "OVERRIDE" in text

def scored(text):
    return 0.9 if sound(text) else 0.2

def locks_out(text):
    calls["locked"] = calls["locked"] or sound(text)
    return calls["locked"]

def draws(text):
    calls["turn"] += 1
    return calls["turn"] % 2 == 0

def constant(text):
    return 0.5

def crashes(text):
    raise RuntimeError("no model was loaded")

def hangs(text):
    import time
    time.sleep(5)

def nonsense(text):
    return "maybe"
"""
FINE = dict.fromkeys(("installed", "reachable", "answers fit", "deterministic", "stateless"), True)
UNKNOWN = dict.fromkeys(("deterministic", "stateless", "tells apart", "score kind"))


@pytest.fixture
def examine(tmp_path: Path) -> Examine:
    """Return what is found of the only defense of a configuration: question to answer."""
    (tmp_path / "guards.py").write_text(GUARDS, encoding="utf-8")

    def found(defense: str) -> dict[str, bool | None]:
        config = tmp_path / "config.yaml"
        config.write_text(
            f"version: 1\ndata: [{{builtin: core}}]\ndefenses:\n  it: {defense}\n", "utf-8"
        )
        (checks,) = examine_config(config).values()
        assert all(check.detail for check in checks)
        return {check.subject: check.is_fine for check in checks}

    return found


@pytest.mark.parametrize(
    ("function", "other"),
    [
        ("sound", {"tells apart": True, "score kind": None}),
        ("scored, threshold: 0.5", {"tells apart": True, "score kind": True}),
        ("locks_out", {"stateless": False, "tells apart": False, "score kind": None}),
        (
            "draws",
            {"deterministic": False, "stateless": None, "tells apart": False, "score kind": None},
        ),
        ("constant, threshold: 0.4", {"tells apart": False, "score kind": True}),
        ("crashes", {"answers fit": False, **UNKNOWN}),
        ("nonsense", {"answers fit": False, **UNKNOWN}),
        ("hangs, timeout_s: 0.2", {"reachable": False, "answers fit": None, **UNKNOWN}),
    ],
)
def test_what_a_function_is_like(
    examine: Examine, function: str, other: dict[str, bool | None]
) -> None:
    """State, drawn answers, one score for everything and unreadable answers are told apart."""
    assert examine(f"{{type: python, target: guards.py:{function}}}") == {
        **FINE,
        "limits": True,
        **other,
    }


@pytest.mark.slow
def test_a_worker_that_locks_itself_is_helped_by_a_fresh_process(examine: Examine) -> None:
    """What is said to help does help."""
    base = "type: python, target: guards.py:locks_out, interpreter: python3"
    assert examine(f"{{{base}}}")["stateless"] is False
    assert examine(f"{{{base}, restart_after: 1}}")["stateless"] is True


@pytest.mark.parametrize(
    "defense",
    [
        "{type: python, target: guards.py:missing}",
        "{type: python, target: guards.py:sound, env: nowhere}",
        "{type: command, command: [no-such-program]}",
    ],
)
def test_what_is_not_there_stops_no_other(tmp_path: Path, defense: str) -> None:
    """One defense that cannot be built is told with the reason; the next one is examined."""
    (tmp_path / "guards.py").write_text(GUARDS, encoding="utf-8")
    config = tmp_path / "config.yaml"
    sound = "{type: python, target: guards.py:sound}"
    config.write_text(
        f"version: 1\ndata: [{{builtin: core}}]\ndefenses:\n  gone: {defense}\n  there: {sound}\n",
        "utf-8",
    )
    gone, there = examine_config(config).values()
    assert (gone[0].subject, gone[0].is_fine) == ("installed", False)
    assert there[0].is_fine is there[1].is_fine is True


def test_a_process_that_does_not_start_is_not_reachable(examine: Examine) -> None:
    """It is installed, but says why it cannot serve."""
    found = examine("{type: python, target: guards.py:sound, interpreter: python3, memory_mb: 16}")
    assert (found["installed"], found["reachable"]) == (True, False)


@pytest.mark.slow
def test_a_person_reads_it_and_a_script_goes_by_its_exit_code(tmp_path: Path) -> None:
    """A service that is down, a profile's own limits and a missing extra are named."""
    held = socket.socket()  # bound, but nobody listens
    held.bind(("127.0.0.1", 0))
    (tmp_path / "blind").mkdir()
    (tmp_path / "blind" / "torch.py").write_text("raise ImportError('none here')", "utf-8")
    address = f"http://127.0.0.1:{held.getsockname()[1]}"
    (tmp_path / "config.yaml").write_text(
        f"""
version: 1
data: [{{builtin: core}}]
services: {{"{address}": {{retries: 0}}}}
defenses:
  down: {{type: http, url: "{address}", body: {{t: {{$input: text}}}}, blocked: $.flagged}}
  vendor: {{type: http, profile: lakera, url: "{address}"}}
  local: {{type: classifier, path: ., positive: [BAD], threshold: 0.5}}
""",
        encoding="utf-8",
    )
    env = {
        "LAKERA_GUARD_API_KEY": "k" * 20,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "blind"), os.environ.get("PYTHONPATH", "")]),
    }
    done = guardmark("doctor", "config.yaml", cwd=tmp_path, env=env)
    assert done.code == 1, done.err
    assert "--  reachable      down cannot be used" in done.out
    assert "pip install 'guardmark[hf]'" in done.out
    as_json = json.loads(guardmark("doctor", "config.yaml", "--json", cwd=tmp_path, env=env).out)
    limits = {name: checks[-1]["detail"] for name, checks in as_json.items()}
    held.close()
    assert "The policy of the project" in limits["vendor"]
