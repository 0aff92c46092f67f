"""How hard a service may be pressed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from guardmark.core.errors import ConfigError

_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """How one service may be called."""

    concurrency: int = 16
    rate: str | None = None
    tokens: str | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    retries: int = 3
    backoff_s: float = 0.25
    adaptive: bool = False
    max_response_bytes: int = 8 * MEBIBYTE
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many in so many seconds."""

    count: float
    period_s: float


def parse_rate(text: str) -> Rate:
    """Read a rate such as `300/min`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"{text!r} is no rate. Write it as 5/s, 300/min or 1000/h.")
    return Rate(count=float(match[1]), period_s=_SECONDS[match[2]])
