"""What the journeys of guards around a model share: services that count, data, and the arms' figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.journeys.command_line import write_rows


@dataclass
class Services:
    """Guards and a model on one server; and what they were asked, by part and text."""

    url: str
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)


def chat_answer(content: str) -> web.Response:
    """An answer in the common chat protocol."""
    message = {"role": "assistant", "content": content}
    return web.json_response(
        {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    )


def lay_out(folder: Path, config: str, rows: Sequence[tuple[str, str]]) -> None:
    """Lay a configuration and its data, each row a label and a text, into a folder."""
    write_rows(
        folder / "data.jsonl",
        [
            {"id": f"s-{number}", "label": label, "text": text, "category": "extraction"}
            for number, (label, text) in enumerate(rows)
        ],
    )
    (folder / "bench.yaml").write_text(config, encoding="utf-8")


def arms_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The arms of a finished run, by name."""
    summary = json.loads((folder / "out" / "summary.json").read_text(encoding="utf-8"))
    return {arm["name"]: arm for arm in summary["pipeline"]["arms"]}


def counts(rate: dict[str, Any]) -> tuple[int, int]:
    """The counts behind a rate."""
    return rate["successes"], rate["trials"]
