"""A judge of sameness is understood, or it is not; there is no third reading."""

from __future__ import annotations

import pytest

from guardmark.adaptive.attacker_models import read_sameness


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ('{"reason": "x", "same": true}', True),
        ('{"same": false}', False),
        ('I think so: {"same": "Yes"}', True),
        ("```\n{'same': 'no'}\n```", False),
    ],
)
def test_a_plain_answer_is_read(said: str, same: bool) -> None:  # noqa: FBT001 - a case
    """Words for true and false count too."""
    assert read_sameness(said) is same


@pytest.mark.parametrize(
    "said",
    [
        "",
        "yes",
        '{"same": 1}',
        '{"same": null}',
        '{"same": "maybe"}',
        '{"same": true} {"same": false}',
    ],
)
def test_all_else_is_no_verdict(said: str) -> None:
    """Prose, numbers, doubts and contradictions are neither same nor different."""
    assert read_sameness(said) is None
