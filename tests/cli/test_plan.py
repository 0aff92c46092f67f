"""The command `plan`: sizes with what they promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.analysis.small_runs import Planned, allow, attack, block, write_run

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
        (["--zero-events", "0.05", "--variants", "1-9"], "groups, about "),
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
        (["--margin", "0.1", "--variants", "many"], "such as 5 or a range such as 1-9"),
        (["--margin", "0.1", "--variants", "9-1"], "Next: 1-9"),
        (["--margin", "0.1", "--variants", "0"], "such as 5 or a range such as 1-9"),
        (["--margin", "0.1", "--like", "RUN", "--icc", "0.5"], "leave out --variants, --icc"),
    ],
)
def test_a_claim_that_is_none_is_refused(
    claim: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is missing."""
    assert code_of(["plan", *claim]) == 2
    assert said in capsys.readouterr().err


def test_groups_of_unequal_size_need_more(capsys: pytest.CaptureFixture[str]) -> None:
    """1 to 9 variants are 5 on average, and are worth less than 5 each; the sizes are named."""
    sizes = {}
    for variants in ("5", "1-9"):
        assert code_of(["plan", "--margin", "0.05", "--variants", variants, "--json"]) == 0
        sizes[variants] = json.loads(capsys.readouterr().out)["promise"]["groups"]
    assert sizes["1-9"] > 1.05 * sizes["5"]
    assert code_of(["plan", "--margin", "0.05", "--variants", "1-9"]) == 0
    assert "groups of 1 to 9 variants (mean 5, median 5) and ICC 0.5" in capsys.readouterr().out


def test_a_plan_like_a_run_takes_its_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty families of one and of nine attacks that fall together: sizes and ICC are the run's."""
    sizes = [1, 9] * 10
    owner = [family for family, size in enumerate(sizes) for _ in range(size)]
    samples = [attack(at, group=f"f{family}") for at, family in enumerate(owner)]
    planned = Planned(
        name="guard", answers=lambda at, _: allow() if owner[at] % 5 == 1 else block()
    )
    write_run(tmp_path / "records.sqlite", samples, [planned])
    assert code_of(["plan", "--margin", "0.1", "--like", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "groups of 1 to 9 variants (mean 5, median 9) and ICC 1, as in" in said
    assert (
        code_of(
            ["plan", "--non-inferiority", "0.1", "--discordance", "0.1", "--like", str(tmp_path)]
        )
        != 0
    )
    assert "holds no benign samples" in capsys.readouterr().err
