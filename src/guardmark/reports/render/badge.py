"""A guard card as a badge for a README: one SVG, with the day and the cohort it speaks of."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from guardmark.reports.chapters.card import cell_of
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import measure_text

if TYPE_CHECKING:
    from guardmark.analysis.cards.card import Card

OLD_FROM_DAYS: Final = 180
"""From so many days on a badge says that it is old."""

_HEIGHT: Final = 20
_CHARACTER: Final = 6.6  # width of a character, in units of the drawing
_PADDING: Final = 10
_MOST_NAME: Final = 40
_COLOURS: Final = {
    "Rely": "#1a7f37",
    "Not enough alone": "#9a6700",
    "Do not rely": "#b42318",
}
_GREY: Final = "#57606a"
_DARK: Final = "#24292f"


def badge_text(card: Card, *, today: date) -> str:
    """Say what a badge says: the attack success rate with its interval, the data and the day."""
    through = measure_text(cell_of(card.figure("attack_success_rate")))
    sets = ", ".join(f"{each.name} {each.version}".strip() for each in card.data)
    measured = card.run.created_utc[:10]
    text = f"ASR {through}, {plain_line(sets)[:_MOST_NAME]}, {measured}, cohort {card.cohort.key}"
    age = age_in_days(card, today=today)
    if age is not None and age >= OLD_FROM_DAYS:
        return f"{text}, {age} days old"
    return text


def age_in_days(card: Card, *, today: date) -> int | None:
    """Return how many days ago a card was measured; None where it states no day."""
    try:
        measured = date.fromisoformat(card.run.created_utc[:10])
    except ValueError:
        return None
    return (today - measured).days


def badge_svg(card: Card, *, today: date) -> str:
    """Draw a card as a badge."""
    label, text = "guardmark", badge_text(card, today=today)
    age = age_in_days(card, today=today)
    is_old = age is not None and age >= OLD_FROM_DAYS
    colour = _COLOURS.get(card.answer, _GREY)
    if is_old:
        colour = _GREY
    left = len(label) * _CHARACTER + 2 * _PADDING
    right = len(text) * _CHARACTER + 2 * _PADDING
    width = left + right
    title = escape(f"{label}: {plain_line(card.subject.name)[:_MOST_NAME]}: {text}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{_HEIGHT}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">'
        f"<title>{title}</title>"
        f'<rect width="{left:.1f}" height="{_HEIGHT}" fill="{_DARK}"/>'
        f'<rect x="{left:.1f}" width="{right:.1f}" height="{_HEIGHT}" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" '
        f'text-anchor="middle">'
        f'<text x="{left / 2:.1f}" y="14" textLength="{left - 2 * _PADDING:.1f}">{label}</text>'
        f'<text x="{left + right / 2:.1f}" y="14" textLength="{right - 2 * _PADDING:.1f}">'
        f"{escape(text)}</text></g></svg>\n"
    )
