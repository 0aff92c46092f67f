"""Which addresses are this machine's own, and what a browser may call them."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest

from guardmark.core.errors import ConfigError
from guardmark.view.server import ViewOptions, check_options, host_names, is_loopback

if TYPE_CHECKING:
    from pathlib import Path

ANY = "0.0.0.0"  # noqa: S104 - of a test
TOKEN = "0123456789abcdef-token"  # noqa: S105 - of a test


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.8.8", "::1"])
def test_an_address_of_this_machine_needs_no_token(tmp_path: Path, host: str) -> None:
    """Nobody else reaches it."""
    assert is_loopback(host)
    assert check_options(ViewOptions(root=tmp_path, host=host)) == ""


@pytest.mark.parametrize("host", [ANY, "::", "192.0.2.7", "example.invalid", "localhost.invalid"])
def test_any_other_address_needs_a_token(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consent alone is not enough; with a token that is long enough the pages are served."""
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="say --allow-remote with --token-env"):
        check_options(ViewOptions(root=tmp_path, host=host))
    with pytest.raises(ConfigError, match="so a token is needed"):
        check_options(ViewOptions(root=tmp_path, host=host, allow_remote=True))
    monkeypatch.setenv("GM_TOKEN", TOKEN)
    given = ViewOptions(root=tmp_path, host=host, allow_remote=True, token_env="GM_TOKEN")  # noqa: S106 - a name
    assert check_options(given) == TOKEN


def test_a_server_on_every_address_answers_to_the_name_of_its_machine(
    tmp_path: Path,
) -> None:
    """And to the names it was given, but to none that means every address."""
    own = f"{platform.node().lower()}:8765"
    names = host_names(ViewOptions(root=tmp_path, host=ANY, names=("Guards.example",)), 8765)
    assert {own, "guards.example:8765", "localhost:8765", "[::1]:8765"} <= names
    assert f"{ANY}:8765" not in names
    alone = host_names(ViewOptions(root=tmp_path, host="127.0.0.1"), 8765)
    assert own not in alone - {"localhost:8765"}


def test_on_the_port_of_the_web_a_browser_names_no_port(tmp_path: Path) -> None:
    """There and nowhere else a host stands alone."""
    options = ViewOptions(root=tmp_path, host="127.0.0.1")
    assert {"localhost", "localhost:80"} <= host_names(options, 80)
    assert "localhost" not in host_names(options, 81)
