"""The verb `watch`: live traffic against limits and a reference run, told where a limit breaks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.gate import reference_rates
from guardmark.analysis.live import (
    LiveCounts,
    LiveDefense,
    LiveRate,
    parse_line,
    watch_defense,
)
from guardmark.app.results.opened_run import open_run
from guardmark.config.settings import Secret, read_text
from guardmark.core.values import dataclass
from guardmark.engine.execution.process import run_on_loop
from guardmark.net.client import Services, post_once
from guardmark.net.redaction import KNOWN
from guardmark.net.service import ServiceLimits
from guardmark.reports.render.json.encoder import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from guardmark.core.estimate import Estimate

_EVERY: Final = 100  # lines between looks at limits
_POST: Final = ServiceLimits(read_timeout_s=3.0, retries=1)  # the stream waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """Everything that a watch says at one time.

    Attributes:
        broken: As they were at the look that showed it.
        lines: How many came, and how many of them were of no use, and why.
    """

    defenses: tuple[LiveDefense, ...]
    broken: tuple[LiveRate, ...]
    lines: Mapping[str, int]


class Watch:
    """Counts a stream, and keeps which limits broke."""

    def __init__(
        self,
        limits: Mapping[str, float],
        *,
        announce: Callable[[str], None],
        against: Path | None = None,
        webhook: str = "",
    ) -> None:
        self.broken: dict[tuple[str, str], LiveRate] = {}
        self._limits, self._announce, self._counts = limits, announce, LiveCounts()
        self._reference: Mapping[str, Mapping[str, Estimate]] = {}
        if against is not None:
            with open_run(against) as run:
                strict = replace(run.settings, confidence=(1 + run.settings.confidence) / 2)
                frame = read_frame(run.reader, strict)
            self._reference = {arm.name: reference_rates(frame, arm) for arm in frame.arms}
        if webhook:
            secret = Secret.model_construct(env=webhook)
            webhook = read_text(secret, "--webhook", Services(redactor=KNOWN))
        self._webhook, self._posted, self._every = webhook, 0, _EVERY

    def take(self, line: bytes) -> None:
        """Count a line, and look at limits now and then."""
        self._counts.take(parse_line(line))
        if self._limits and not self._counts.notes["lines"] % self._every:
            self.look()

    def look(self) -> LiveView:
        """Note which limits are broken by now, post those that were not, and return everything."""
        defenses = tuple(
            watch_defense(name, rows, reference=self._reference.get(name, {}), limits=self._limits)
            for name, rows in self._counts.rows.items()
        )
        for rate in (rate for each in defenses for rate in each.rates if rate.is_broken):
            broken = replace(rate, after_lines=self._counts.notes["lines"])
            self.broken.setdefault((rate.defense, rate.name), broken)
        shown = tuple(self.broken.values())
        while self._webhook and self._posted < len(shown):
            body = json.dumps(encode(shown[self._posted])).encode()
            services = Services(redactor=KNOWN, default=_POST)
            failure = run_on_loop(post_once(services, self._webhook, body))
            if failure:
                self._announce(f"The webhook took nothing: {failure}")
                self._every *= 2  # one that is down must not hold up the stream
                break
            self._posted, self._every = self._posted + 1, _EVERY
        return LiveView(defenses=defenses, broken=shown, lines=self._counts.notes)
