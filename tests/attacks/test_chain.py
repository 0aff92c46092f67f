"""The order in which operators may stand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.attacks.catalogue import arm, arms, operators, parse_chain
from guardmark.attacks.contract import (
    LONGEST,
    LegitUse,
    OperatorChain,
    OperatorConfig,
    Slot,
    Tier,
    fault_of,
    weakest,
)
from guardmark.core.errors import ConfigError

ARMS = st.sampled_from(arms())


@given(st.lists(ARMS, min_size=1, max_size=3))
def test_allowed_chains_keep_every_rule(chosen: list[OperatorConfig]) -> None:
    """Slots never fall, one encoding at most, nothing after a hidden carrier, no repeats."""
    if fault_of(chosen):
        return
    slots = [a.operator.slot for a in chosen]
    assert slots == sorted(slots)
    assert slots.count(Slot.ENCODING) <= 1
    assert all(before.family != "F10" for before, _ in pairwise(chosen))
    assert len({a.operator.name for a in chosen}) == len(chosen)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("base64 + leet", "stands after"),
        ("base64 + hex", "two encodings"),
        ("tag_characters + padding", "hides the text"),
        ("leet + leet(p=1.0)", "appears twice"),
        ("leet + accent + rlo_wrap + padding", "4 operators"),
        ("homoglyph + synonym", "stands after"),
        ("reversal + rot13", "two encodings"),
    ],
)
def test_a_chain_that_is_not_allowed_says_why(key: str, words: str) -> None:
    """The message names the rule."""
    with pytest.raises(ConfigError, match=words):
        parse_chain(key)


def test_an_empty_chain_is_none() -> None:
    """Applying nothing is no attack."""
    assert "0 operators" in fault_of(())


def test_a_full_chain_takes_no_more() -> None:
    """Three is the longest."""
    chain = parse_chain("synonym + leet + json_carrier")
    assert len(chain.arms) == LONGEST
    assert fault_of((*chain.arms, arm("padding")))


def test_a_chain_sums_up_its_arms() -> None:
    """Weakest tier, any decoder, families in order, slot of the last."""
    chain = parse_chain("synonym + homoglyph + base64(wrapper=none)")
    assert chain.tier is Tier.V3_TABLE
    assert chain.needs_decoder
    assert chain.families == ("F12", "F4", "F9")
    assert chain.slot is Slot.ENCODING
    assert chain.key == (
        "synonym@1(p=1.0) + homoglyph@1(script=cyrillic,p=0.3) + base64@1(wrapper=none)"
    )


@given(st.lists(ARMS, min_size=1, max_size=3))
def test_a_chain_is_read_back_from_its_key(chosen: list[OperatorConfig]) -> None:
    """A record's key rebuilds the chain: a replay needs nothing else."""
    if not fault_of(chosen):
        chain = OperatorChain(arms=tuple(chosen))
        assert parse_chain(chain.key) == chain


def test_tiers_are_ordered_strongest_first() -> None:
    """The headline is strict (V0, V1) and full (all but V4)."""
    assert [t for t in Tier if t.strict] == [Tier.V0, Tier.V1]
    assert [t for t in Tier if not t.in_full] == [Tier.V4]
    assert weakest((Tier.V0, Tier.V3_TABLE, Tier.V2)) is Tier.V3_TABLE
    assert weakest(()) is Tier.V0


def test_every_family_says_how_common_its_look_is() -> None:
    """Blocking what nobody writes is free; the benign twin is read with this."""
    assert {o.legit_use for o in operators()} == set(LegitUse)
