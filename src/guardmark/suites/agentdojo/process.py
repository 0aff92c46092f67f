"""The processes that hold AgentDojo: one a core, each asked line by line."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORKER: Final = Path(__file__).with_name("worker.py")
_LONGEST_LINE: Final = 1 << 26
_KEPT_ERRORS: Final = 300
_NEXT: Final = (
    "Next: pip install 'guardmark[agentdojo]', or name the interpreter of an environment that has "
    "it: agent.interpreter."
)


class AgentDojoProcess:
    """One process; its answers come in the order of the questions."""

    def __init__(self, interpreter: str) -> None:
        self._interpreter = interpreter or sys.executable
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._asked = 0

    async def ask(self, do: str, **about: object) -> Mapping[str, Any]:
        """Put a question, and return its answer.

        Raises:
            ConfigError: If the package is not there.
            DatasetError: If a check or the package itself fails.
        """
        async with self._turn:
            process = await self._started()
            self._asked += 1
            line = json.dumps({"do": do, "id": self._asked, **about}) + "\n"
            answer = await self._exchange(process, line.encode())
        if "fault" in answer:
            if "ModuleNotFoundError" in answer["fault"]:
                raise ConfigError(f"AgentDojo is not installed: {answer['fault']}.\n{_NEXT}")
            raise DatasetError(
                f"AgentDojo failed at `{do}`: {answer['fault'][:_KEPT_ERRORS]}.\n"
                "Next: this is a fault of the suite or of its version; 0.1.35 is known to work."
            )
        return answer

    async def _exchange(
        self, process: asyncio.subprocess.Process, line: bytes
    ) -> Mapping[str, Any]:
        if process.stdin is None or process.stdout is None:
            raise DatasetError("The process of AgentDojo has no pipes.")
        try:
            process.stdin.write(line)
            await process.stdin.drain()
            written = await process.stdout.readline()
        except (ConnectionError, ValueError) as error:
            raise DatasetError(f"The process of AgentDojo ended: {error}.") from error
        if not written:
            raise DatasetError(
                "The process of AgentDojo ended.\nNext: run again; what is stored stays."
            )
        answer: Mapping[str, Any] = json.loads(written)
        return answer

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    self._interpreter,
                    str(_WORKER),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    limit=_LONGEST_LINE,
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(
                    f"agent.interpreter: {self._interpreter} cannot be started: {error.strerror}."
                ) from error
        return self._process

    async def close(self) -> None:
        """End the process: it ends by itself when its input does."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(2.0):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
