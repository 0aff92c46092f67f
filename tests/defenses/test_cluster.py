"""Joining a Ray cluster: what is missing is named before anything is asked."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from guardmark.app.settings import RunSettings
from guardmark.core.errors import ConfigError
from guardmark.engine.execution.cluster import Cluster, doubts


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
def test_a_missing_ray_names_the_extra() -> None:
    """And nothing else of a run needs it."""
    with pytest.raises(ConfigError, match=r"not installed.\nNext: pip install 'guardmark\[ray\]'"):
        Cluster(RunSettings(engine="ray", workers=2)).joined()


@pytest.mark.parametrize("version", ["2.59.1", "3.0.0"])
def test_another_ray_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """All machines of a cluster need the same."""
    (tmp_path / "ray.py").write_text(f"__version__ = {version!r}\n")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=rf"Ray {version} is installed.*\n.*guardmark\[ray\]"):
        Cluster(RunSettings(engine="ray", workers=2)).joined()
    monkeypatch.delitem(sys.modules, "ray")


@pytest.mark.parametrize(
    ("each_s", "calls", "parts", "doubt"),
    [
        (0.01, 1000, 1, "take about 10.0 s in one process, of which 2 workers save 4.9 s; Ray"),
        (0.01, 1_000_000, 1, ""),
        (1e-5, 10_000_000, 1, "take about 100.0 s in one process, of which 2 workers save 0.0 s"),
        (0.0, 1000, 0, "what calls a service is asked from here all the same"),
    ],
)
def test_what_workers_save_is_held_against_what_they_cost(
    each_s: float, calls: int, parts: int, doubt: str
) -> None:
    """To start Ray takes seconds, and to send a prompt as long as a rule takes for several."""
    settings = RunSettings(engine="ray", workers=2)
    said = "".join(doubts(settings, each_s, calls=calls, parts=parts))
    assert doubt in said
    assert bool(said) == bool(doubt)
