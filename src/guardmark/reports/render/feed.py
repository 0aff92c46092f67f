"""Changes of a board as an RSS feed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.reports.document.safe_text import plain_line

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEntry:
    """One change.

    Attributes:
        id: What tells it from all others.
        title: What changed.
        link: Address of the page, below that of the board.
        when: When it was measured, ISO 8601.
        text: What came out.
    """

    id: str
    title: str
    link: str
    when: str
    text: str


def feed_xml(entries: Sequence[FeedEntry], *, title: str, address: str) -> str:
    """Write a feed of RSS 2.0, newest first; equal entries give equal bytes."""
    root = ET.Element("rss", version="2.0")
    channel = ET.SubElement(root, "channel")
    base = address.rstrip("/")
    if base:
        base += "/"
    _add(channel, "title", title)
    _add(channel, "link", f"{base}index.html")
    _add(channel, "description", "Guard cards: what was measured, with intervals.")
    for each in entries:
        item = ET.SubElement(channel, "item")
        _add(item, "title", each.title)
        _add(item, "link", f"{base}{each.link}")
        guid = ET.SubElement(item, "guid", isPermaLink="false")
        guid.text = _clean(each.id)
        when = _read_time(each.when)
        if when is not None:
            _add(item, "pubDate", format_datetime(when))
        _add(item, "description", each.text)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _read_time(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is not None:
        return when
    return when.replace(tzinfo=UTC)


def _add(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = _clean(plain_line(text))


def _clean(text: str) -> str:
    """Leave out what XML cannot hold."""
    return _NOT_XML.sub("", text)
