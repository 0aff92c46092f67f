"""The words of a judge of sameness, read; what is not understood is neither same nor different."""

from __future__ import annotations

from guardmark.parsing.objects import read_object

_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def read_sameness(text: str) -> bool | None:
    """Read whether two requests ask for the same."""
    said = (read_object(text, key="same").fields or {}).get("same")
    if isinstance(said, bool):
        return said
    return _WORDS.get(said.strip().lower()) if isinstance(said, str) else None
