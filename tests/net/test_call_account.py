"""Whose call a request belongs to."""

from __future__ import annotations

import contextlib

from guardmark.net.call_account import CallAccount, present_account


def asked_about() -> object:
    """What the present call asks about."""
    account = present_account()
    return None if account is None else account.asked_about


def test_an_account_holds_for_what_is_called_meanwhile() -> None:
    """The innermost counts, the outer one holds again after it, also after a failure."""
    assert asked_about() is None
    with CallAccount(("guard", 0, 7)):
        with contextlib.suppress(KeyError), CallAccount(("judge", 1, 8)):
            assert asked_about() == ("judge", 1, 8)
            raise KeyError
        assert asked_about() == ("guard", 0, 7)
    assert asked_about() is None
