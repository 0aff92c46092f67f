"""Variables from a file: only asked for, never over what is set, and keys are hidden."""

from __future__ import annotations

import os

import pytest

from guardmark.config.mistakes import names_secret
from guardmark.core.errors import ConfigError
from guardmark.net.redaction import KNOWN, REDACTED, read_variables

FILE = """\
# keys of the services
export PLANTED_API_KEY=planted-0123456789   # of the test
PLANTED_SECRET_KEY='with spaces, $HOME and # sign'

PLANTED_BASE_URL="http://127.0.0.1:9/v1"
PLANTED_MODEL=small-model-of-the-test
PLANTED_EMPTY=
PLANTED_HELD=from-the-file
PLANTED_MODEL=later-model-of-the-test
"""


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set from the file goes with the test."""
    for line in FILE.splitlines():
        if "=" in line:
            name = line.removeprefix("export ").partition("=")[0]
            monkeypatch.setenv(name, "")  # so that it is taken back at the end
            monkeypatch.delenv(name)


def test_values_are_set_as_they_stand_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes and comments go, nothing is filled in, the last line of a name wins."""
    monkeypatch.setenv("PLANTED_HELD", "from-the-shell")
    assert list(read_variables(FILE, "vars", names_secret)) == ["PLANTED_HELD"]
    held = {name: value for name, value in os.environ.items() if name.startswith("PLANTED_")}
    assert held == {
        "PLANTED_API_KEY": "planted-0123456789",
        "PLANTED_SECRET_KEY": "with spaces, $HOME and # sign",
        "PLANTED_BASE_URL": "http://127.0.0.1:9/v1",
        "PLANTED_MODEL": "later-model-of-the-test",
        "PLANTED_EMPTY": "",
        "PLANTED_HELD": "from-the-shell",
    }


def test_what_its_name_calls_a_key_is_hidden_from_then_on() -> None:
    """A model's name is none: reports must be able to tell it."""
    list(read_variables(FILE, "vars", names_secret))
    said = "planted-0123456789 asked later-model-of-the-test at http://127.0.0.1:9/v1"
    assert KNOWN.text(said) == f"{REDACTED} asked later-model-of-the-test at http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    "line",
    ["Q B", "Qx", "1Q=x", "Q=x y", "Q=$B", 'Q="${B}"', "Q='x", "Q=`date`", "Q: x", "Q-B=x"],
)
def test_a_line_that_needs_a_shell_is_refused_without_its_words(line: str) -> None:
    """Nothing is set then: half of a file would be a trap. What stands there may be a key."""
    with pytest.raises(ConfigError, match=r"vars:2: is no line NAME=VALUE") as refused:
        list(read_variables(f"PLANTED_FIRST=1\n{line}\n", "vars", names_secret))
    assert line not in str(refused.value)
    assert "PLANTED_FIRST" not in os.environ
