"""The example service and its configuration do what the how-to page says."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.app.parts.loading import load_config
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ServiceRefused
from guardmark.core.outcome import Outcome
from guardmark.defenses.guard import as_guard
from guardmark.defenses.http.defense import HttpSettings
from guardmark.defenses.probe import ProbeReport, probe_defense
from guardmark.engine.calls import as_coroutine
from guardmark.net.client import Services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


async def _probed(defense: Any) -> ProbeReport:
    return await probe_defense(defense.name, as_coroutine(as_guard(defense)))


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[int]]]:
    """Start the example as a user does, on a free port."""
    running: list[asyncio.subprocess.Process] = []

    async def start_one(*options: str, **variables: str) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        command = [sys.executable, str(EXAMPLES / "service.py"), "--port", str(port), *options]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, env=os.environ | variables
        )
        running.append(process)
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return port
        raise RuntimeError("the example did not start")

    yield start_one
    for process in running:
        process.terminate()
        await process.wait()


def _defense(port: int, services: Services, **changes: Any) -> Any:
    """Build the defense of examples/http.yaml, on another port."""
    loaded = load_config(EXAMPLES / "http.yaml")
    settings = loaded.parts["defenses", "service"]
    assert isinstance(settings, HttpSettings)
    moved = settings.url.replace("8900", str(port))
    checked = settings.model_copy(update={"url": moved} | changes)
    context = BuildContext(folder=EXAMPLES, seed=7, services=services, defenses={})
    return checked.build("service", context)


async def test_the_example_can_be_measured(start: Callable[..., Awaitable[int]]) -> None:
    """It blocks a plain attack, lets a gardener pass, and stumbles without being thrown."""
    services = Services()
    port = await start("--failures", "0.3")
    report = await _probed(_defense(port, services))
    await services.close()
    assert (report.attack.outcome, report.benign.outcome) == (Outcome.BLOCK, Outcome.ALLOW)
    assert report.warnings == ()
    assert report.attack.evidence is not None
    assert "override" in {finding.name for finding in report.attack.evidence.categories}


async def test_the_example_asks_for_its_token(
    start: Callable[..., Awaitable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the probe says so; with it the defense answers."""
    from guardmark.config.settings import Secret

    services = Services()
    port = await start(GUARD_TOKEN="right-token")  # noqa: S106 - a token of this test's own
    with pytest.raises(ServiceRefused, match="401"):
        await _probed(_defense(port, services))
    monkeypatch.setenv("GUARD_TOKEN", "right-token")
    report = await _probed(_defense(port, services, api_key=Secret(env="GUARD_TOKEN")))
    await services.close()
    assert report.attack.outcome is Outcome.BLOCK
