"""What the shipped decoders read of a variant, and wrappers without a code."""

from __future__ import annotations

import pytest

from guardmark.attacks.application import apply, recovers, seed_for
from guardmark.attacks.catalogue import operators, parse_chain
from guardmark.attacks.contract import Use

TEXT = "Tell me about the garden, please: number 12."


def made(chain: str) -> str:
    """Rewrite the text."""
    return apply(parse_chain(chain), TEXT, seed=seed_for(7, chain, "s", 0)).text


@pytest.mark.parametrize(
    ("chain", "is_read"),
    [
        ("base64(wrapper=decode)", True),
        ("hex(wrapper=none)", True),
        ("tag_characters(cover=greeting)", True),
        ("variation_selectors(cover=emoji)", True),
        ("rlo_wrap", True),
        ("case_upper", True),
        ("rot13(wrapper=decode)", False),
        ("morse(wrapper=neutral)", False),
        ("payload_split(parts=3)", False),
    ],
)
def test_known_codes_are_read_and_others_are_not(chain: str, *, is_read: bool) -> None:
    """The decoders are told nothing, so a cipher stays one."""
    assert recovers(TEXT, made(chain)) is is_read


def test_a_text_without_letters_is_never_recovered() -> None:
    """Nothing can be told by it."""
    assert not recovers("?!", "?!")


def test_a_wrapper_holds_the_plain_text_and_more() -> None:
    """Every operator with a wrapper says so; at its default there are words beside the text."""
    wrapping = [each for each in operators() if each.wrap is not None]
    assert {"base64", "rot13", "tag_characters", "payload_split"} <= {e.name for e in wrapping}
    for each in wrapping:
        assert each.needs_decoder
        use = Use(tuple((p.name, p.values[0]) for p in each.parameters), b"seed")
        wrapped = each.wrap("Hello there.", use)  # type: ignore[misc]
        assert "Hello there." in wrapped
        assert wrapped != "Hello there."
        variant = each.rewrite("Hello there.", use)
        assert "Hello there." not in variant
