"""A guard card on paper: two sheets, also with everything that a run of the demo shows."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pypdf import PdfReader

from guardmark.app.results.cards import read_card
from guardmark.reports.chapters.card import card_document
from guardmark.reports.render.html.page import render_html

if TYPE_CHECKING:
    from conftest import Opener

pytestmark = pytest.mark.slow

CARDS = Path(__file__).parents[2] / "docs" / "field-study" / "cards"


@pytest.mark.parametrize("name", ["core/llm_guardrail", "public/forcefield", "words/obscenity"])
def test_a_card_prints_on_two_sheets(opener: Opener, name: str) -> None:
    """On both usual papers, with its blind spots, frameworks, terms and command."""
    card = read_card(CARDS / f"{name}.card.json")
    page = opener.open(render_html(card_document(card))).page
    page.emulate_media(media="print")
    for paper in ("A4", "Letter"):
        printed = PdfReader(BytesIO(page.pdf(format=paper)))
        assert len(printed.pages) <= 2, paper
        text = "\n".join(sheet.extract_text() for sheet in printed.pages)
        assert "make field-study" in text
        assert "In the words of frameworks" in text
