"""The command `plan`: sizes with what they promise."""

from __future__ import annotations

import json

import pytest

from guardmark.cli import main


def code_of(words: list[str]) -> object:
    """Run the command line, and return its exit code."""
    with pytest.raises(SystemExit) as left:
        main(words)
    return left.value.code


@pytest.mark.parametrize(
    ("claim", "first"),
    [
        (["--margin", "0.05"], "381 samples: a rate known to ±5 points at 95% confidence."),
        (["--zero-events", "0.01"], "381 samples: no event among them"),
        (["--difference", "0.3", "--discordance", "0.4"], "pairs: a difference of 30 points found"),
        (["--non-inferiority", "0.02", "--discordance", "0.02"], "401 pairs: not worse by more"),
        (["--zero-events", "0.05", "--variants", "4"], "groups, "),
    ],
)
def test_a_size_is_told_with_what_it_counts(
    claim: list[str], first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups and rows where variants are named."""
    assert code_of(["plan", *claim]) == 0
    assert first in capsys.readouterr().out


def test_a_simulated_chance_comes_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    """And with the runs behind it, in JSON as in words."""
    words = ["plan", "--margin", "0.1", "--rate", "0.2", "--variants", "4"]
    assert code_of(words) == 0
    assert "1,000 runs simulated and analysed" in capsys.readouterr().out
    assert code_of([*words, "--json"]) == 0
    promise = json.loads(capsys.readouterr().out)["promise"]
    assert promise["rows"] == 4 * promise["groups"]
    assert promise["chance"] >= 0.95
    assert 0 < promise["error"] < 0.02


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ([], "Name one claim"),
        (["--margin", "0.1", "--zero-events", "0.1"], "--margin and --zero-events"),
        (["--difference", "0.1"], "needs --discordance"),
        (["--difference", "0.2", "--discordance", "0.1"], "cannot be planned"),
    ],
)
def test_a_claim_that_is_none_is_refused(
    claim: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is missing."""
    assert code_of(["plan", *claim]) == 2
    assert said in capsys.readouterr().err
