"""How busy this process was while it waited for services, kept with the records."""

from __future__ import annotations

from guardmark.store.loop_load import LoopLoad


def test_what_is_kept_is_read_again() -> None:
    """Both sums, so that a run that goes on adds its own."""
    load = LoopLoad(300, 1_000)
    assert LoopLoad.read(load.text) == load
    assert load.share == 0.3


def test_a_run_that_waited_for_nobody_has_no_load() -> None:
    """Undefined is not zero."""
    assert LoopLoad.read(None).share is None
