"""Names, keys and parameters of all operators."""

from __future__ import annotations

import pytest

from guardmark.attacks.catalogue import (
    FAMILY_PRIOR,
    arm,
    arms,
    family,
    operator,
    operators,
    parse_arm,
)
from guardmark.attacks.contract import Operator, Tier
from guardmark.attacks.tables import families
from guardmark.core.errors import ConfigError, UnknownName

ALL = [pytest.param(found, id=found.name) for found in operators()]


def test_names_are_unique_and_families_complete() -> None:
    """Fourteen families, none empty, every name once; F14 is the attacker model."""
    names = [found.name for found in operators()]
    assert len(set(names)) == len(names)
    assert list(families()) == [*(f"F{n}" for n in range(1, 14)), "F15"]
    assert all(family(name) for name in families())
    assert sum(len(family(name)) for name in families()) == len(names)


@pytest.mark.parametrize("found", ALL)
def test_an_operator_declares_how_its_tier_is_proved(found: Operator) -> None:
    """An inverse for V0, a list for V3-table; V3 has neither and waits for a judge."""
    assert (found.restore is not None) or found.tier is not Tier.V0
    assert (found.check is not None) == (found.tier is Tier.V3_TABLE)
    assert found.summary.endswith(".")
    assert found.version >= 1
    assert found.key == f"{found.name}@{found.version}"


@pytest.mark.parametrize("found", ALL)
def test_parameters_have_a_default_and_no_value_twice(found: Operator) -> None:
    """The first value is the default; the bandit's arms are the product of all."""
    for parameter in found.parameters:
        assert parameter.values
        assert len(set(parameter.values)) == len(parameter.values)
        assert len({type(value) for value in parameter.values}) == 1


def test_every_arm_is_read_back_from_its_key() -> None:
    """Keys go into records and come back."""
    for found in arms():
        assert parse_arm(found.key) == found
    assert len({found.key for found in arms()}) == len(arms())


def test_arms_can_be_limited_to_families() -> None:
    """In the fixed order, whatever order the families are named in."""
    assert {found.family for found in arms(("F3", "F1"))} == {"F1", "F3"}
    assert arms(("F3", "F1")) == arms(("F1", "F3"))


def test_what_is_not_written_takes_its_default() -> None:
    """A short key is the arm at its defaults."""
    assert parse_arm("homoglyph").key == "homoglyph@1(script=cyrillic,p=0.3)"
    assert parse_arm(" homoglyph( p = 1 ) ") == arm("homoglyph", p=1.0)
    assert parse_arm("zalgo@1(marks=3)") == arm("zalgo", marks=3)


def test_a_share_between_the_listed_ones_is_allowed() -> None:
    """A person may try p=0.25; the bandit does not."""
    assert arm("homoglyph", p=0.25).key.endswith("p=0.25)")
    assert arm("homoglyph", p=0.25) not in arms()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("leet(p=0)", "not allowed"),
        ("leet(p=1.5)", "not allowed"),
        ("leet(p=much)", "is not a number"),
        ("leet(q=1)", "no parameter 'q'"),
        ("leet(p)", "not of the form parameter=value"),
        ("zalgo(marks=2)", "not allowed"),
        ("base64(wrapper=loud)", "not allowed"),
        ("leet@2", "version 2"),
        ("leet(p=1", "is not an operator"),
    ],
)
def test_a_wrong_key_says_what_would_be_right(key: str, words: str) -> None:
    """In one message of a few lines."""
    with pytest.raises(ConfigError, match=words) as caught:
        parse_arm(key)
    assert len(str(caught.value).splitlines()) <= 5


def test_a_misspelt_name_is_answered_with_a_near_one() -> None:
    """Both for operators and families."""
    with pytest.raises(UnknownName, match="Did you mean 'homoglyph'"):
        operator("homoglyf")
    with pytest.raises(UnknownName, match="Known: F1"):
        family("F99")


def test_priors_name_families_that_exist() -> None:
    """F14 is the attacker model; everything else is here."""
    known = set(families()) | {"F14"}
    assert set(FAMILY_PRIOR) == {"keyword", "pattern", "lexical-statistical", "intent", "format"}
    assert all(set(families) <= known for families in FAMILY_PRIOR.values())
