"""The pytest plug-in: the fixture `guardmark`, a mark of the same name, and what was measured.

Loaded by every pytest of an environment that has guardmark, so it imports next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.testing.guarding import GuardCheck

_NAME = "guardmark"


@pytest.fixture(name=_NAME)
def guardmark_fixture(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GuardCheck]:
    """Measure defenses in a test; see `GuardCheck.assert_guarded`."""
    from guardmark.testing.guarding import GuardCheck

    check = GuardCheck(folder=tmp_path / _NAME)
    yield check
    request.node.user_properties.extend((_NAME, line) for line in check.measured)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, so that `-m guardmark` chooses the tests that measure."""
    config.addinivalue_line("markers", f"{_NAME}: measures a defense with the fixture {_NAME}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the fixture."""
    for item in items:
        if _NAME in getattr(item, "fixturenames", ()):
            item.add_marker(_NAME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the rates of every defense that tests measured, workers of xdist included."""
    lines: dict[str, None] = {}  # each once, in order
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, line in getattr(report, "user_properties", ()):
                if name == _NAME:
                    lines[line] = None
    if lines:
        terminalreporter.section(_NAME)
        for line in lines:
            terminalreporter.write(f"{line}\n")
