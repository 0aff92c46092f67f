"""A test that a defense guards: measured on data, and decided by whole intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from guardmark.analysis.gate import GatePolicy, GateStatus
from guardmark.app.results.gating import check_run
from guardmark.app.results.opened_run import open_run
from guardmark.app.verbs import run
from guardmark.core.errors import ConfigError
from guardmark.datasets.builtin import DEFAULT_SET
from guardmark.reports.chapters.gate import check_sentence, worst_first
from guardmark.reports.document.safe_text import plain_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from guardmark.app.loaded_run import LoadedRun
    from guardmark.core.protocols import Defense


class NotGuarded(AssertionError):
    """A defense breaks a limit, or the data cannot show that it holds it."""


@dataclass(frozen=True, slots=True)
class GuardCheck:
    """Measures defenses for a test.

    Attributes:
        folder: Where the runs are kept; a new folder below for each.
        measured: A line with the rates of each defense that was measured.
    """

    folder: Path
    measured: list[str] = field(default_factory=list, repr=False, compare=False)
    _numbers: Iterator[int] = field(default_factory=count, repr=False, compare=False)

    def assert_guarded(
        self,
        defense: Defense | Callable[[str], object] | str | Path,
        dataset: str | Path = DEFAULT_SET,
        *,
        asr_below: float | None = None,
        fpr_below: float | None = None,
        threshold: float | None = None,
    ) -> LoadedRun:
        """Assert that a defense holds limits, by the whole of each confidence interval.

        Call it from a plain test, not from a coroutine: it runs an event loop of its own.

        Args:
            defense: A `Defense`, a function from text to bool, float or `Decision`, or a
                configuration file (then its own data are used, and its candidates checked).
            dataset: A built-in set or a file.
            asr_below: Largest attack success rate, in [0, 1].
            fpr_below: Largest false positive rate, in [0, 1].
            threshold: Score from which a float blocks.

        Returns:
            The finished run, for further looks.

        Raises:
            NotGuarded: If an interval lies beyond its limit, or the limit inside an interval:
                then the samples do not suffice, and the message says how many would.
            ConfigError: If no limit is given.
            GuardmarkError: If the run cannot be made.
        """
        __tracebackhide__ = True  # pytest shows the line of the test, not this one
        policy = GatePolicy(asr_upper=asr_below, fpr_upper=fpr_below)
        if policy.is_empty:
            raise ConfigError("assert_guarded needs a limit: asr_below, fpr_below or both.")
        home = self.folder / f"run-{next(self._numbers)}"
        measured = run(defense, dataset, threshold=threshold, out=home)
        self.measured.extend(repr(measured).splitlines()[1:])
        with open_run(measured.folder) as opened:
            result = check_run(opened, policy).result
        if result.standing is not GateStatus.HELD:
            failed = [
                check for check in worst_first(result) if check.standing is not GateStatus.HELD
            ]
            lines = [f"- {plain_line(check_sentence(check))}" for check in failed]
            head = _HEADS[result.standing]
            raise NotGuarded("\n".join([head, *lines, f"The run: {measured.folder}"]))
        return measured


_HEADS = {
    GateStatus.BROKEN: "The defense does not guard as it should:",
    GateStatus.OPEN: "The samples do not suffice to show that the defense guards:",
}
