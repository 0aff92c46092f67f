"""Every snippet of the how-to page is a configuration that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from guardmark.app.settings import ServiceSettings
from guardmark.config.settings import BuildContext
from guardmark.defenses.http.defense import HttpSettings
from guardmark.net.client import Services

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "measure-an-http-service.md").read_text(encoding="utf-8")
SNIPPETS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("snippet", [s for s in SNIPPETS if "type" in s])
def test_a_defense_on_the_page_can_be_built(
    snippet: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its keys set, and nothing else."""
    monkeypatch.setenv("VENDOR_KEY", "a-key")
    monkeypatch.setenv("VENDOR_TOKEN", "a-token")
    assert snippet.pop("type") == "http"
    settings = HttpSettings.model_validate(snippet)
    context = BuildContext(folder=ROOT, seed=1, services=Services(), defenses={})
    assert settings.build("vendor", context)


def test_the_services_on_the_page_are_valid() -> None:
    """Limits as the settings know them."""
    (services,) = [s["services"] for s in SNIPPETS if "services" in s]
    for limits in services.values():
        ServiceSettings.model_validate(limits)


def test_the_page_names_every_setting() -> None:
    """A setting nobody can read about does not exist."""
    table = PAGE.split("## All settings")[1]
    missing = [name for name in HttpSettings.model_fields if f"`{name}`" not in table]
    assert missing == []
