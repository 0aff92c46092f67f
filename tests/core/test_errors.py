"""Errors raised on purpose: their exit codes and their words."""

from __future__ import annotations

import pytest

from guardmark.core import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.GuardmarkError, 70),
        (errors.ConfigError, 2),
        (errors.BadSettings, 2),
        (errors.UnknownName, 2),
        (errors.DatasetError, 3),
        (errors.StoreError, 3),
        (errors.StorageError, 7),
        (errors.IncomparableRuns, 3),
        (errors.ServiceError, 4),
        (errors.ServiceTimeout, 4),
        (errors.ServiceRefused, 4),
        (errors.UntrustworthyRun, 5),
        (errors.BudgetReached, 6),
    ],
)
def test_each_error_has_its_exit_code(error: type[errors.GuardmarkError], code: int) -> None:
    """Scripts go by it; the module's docstring draws the same tree."""
    assert issubclass(error, errors.GuardmarkError)
    assert error.exit_code == code
    assert errors.__doc__ is not None
    line = next(
        line for line in errors.__doc__.splitlines() if f" {error.__name__} " in f" {line} "
    )
    assert str(code) in line.split()


def test_no_error_of_the_tree_is_missing_above() -> None:
    """A new error needs an exit code of its own choosing."""

    def below(error: type[BaseException]) -> set[type[BaseException]]:
        return {error}.union(*(below(sub) for sub in error.__subclasses__()))

    own = {e.__name__ for e in below(errors.GuardmarkError) if e.__module__ == errors.__name__}
    assert len(own) == 13


def test_an_unknown_name_says_what_would_have_been_right() -> None:
    """In one line."""
    error = errors.UnknownName("defense", "llama_gard", ["llama_guard", "keyword"])
    assert str(error) == (
        "No defense is called 'llama_gard'. Did you mean 'llama_guard'? "
        "Known: keyword, llama_guard."
    )


def test_nothing_near_gives_no_hint() -> None:
    """A wild guess helps nobody."""
    assert errors.did_you_mean("zzz", ["keyword"]) == ""
    assert str(errors.UnknownName("judge", "x", [])) == "No judge is called 'x'. Known: none."


def test_names_are_listed_in_order() -> None:
    """Sorted, or the word none."""
    assert errors.listed(["b", "a"]) == "a, b"
    assert errors.listed([]) == "none"


def test_bad_settings_are_at_most_five_lines() -> None:
    """Four with their setting, the others counted."""
    mistakes = [(("patterns", str(n)), "is wrong.") for n in range(9)]
    lines = str(errors.BadSettings(mistakes)).splitlines()
    assert lines[0] == "patterns.0: is wrong."
    assert len(lines) == 5
    assert lines[-1] == "... and 5 more."


def test_a_very_long_list_of_known_names_is_cut() -> None:
    """Its end is counted."""
    said = errors.listed(f"name{n:03}" for n in range(100))
    assert said.startswith("name000, name001")
    assert said.endswith("name039 and 60 more")


def test_an_unknown_name_lists_the_known_ones_however_they_are_given() -> None:
    """Also from an iterator, which can be read once only."""
    told = str(errors.UnknownName("colour", "bleu", iter(["red", "blue"])))
    assert told == "No colour is called 'bleu'. Did you mean 'blue'? Known: blue, red."


def test_what_an_extra_brings_is_named_where_it_is_missing() -> None:
    """With the command that installs it; what is installed is simply imported."""
    with errors.needs("Tables need pandas", "pandas"):
        import json
    assert json.loads("1") == 1
    with pytest.raises(errors.ConfigError) as told, errors.needs("Tables need pandas", "pandas"):
        import no_such_library  # noqa: F401  # that is the point
    assert str(told.value) == "Tables need pandas.\nNext: pip install 'guardmark[pandas]'."


def test_a_number_stands_with_its_noun() -> None:
    """One alone has no plural; thousands are marked."""
    said = [errors.counted(count, "run") for count in (0, 1, 2_000)]
    assert said == ["0 runs", "1 run", "2,000 runs"]
