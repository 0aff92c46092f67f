"""Keeping secrets out of every word that leaves the process."""

from __future__ import annotations

import json
from urllib.parse import quote

REDACTED = "[redacted]"
_SHORTEST = 4
_SHORTEST_IN_DATA = 8
_SCHEMES = ("Bearer ", "Basic ", "Token ", "ApiKey ", "Api-Key ")


class Redactor:
    """Replaces the secrets it was told by a mark, in text and in bytes."""

    __slots__ = ("_as_bytes", "_as_text")

    def __init__(self) -> None:
        self._as_text: list[str] = []
        self._as_bytes: list[bytes] = []

    def hide(self, secret: str) -> None:
        """Redact this secret from now on, as it is, escaped for JSON and for URLs."""
        bare = next((secret[len(s) :] for s in _SCHEMES if secret.startswith(s)), secret)
        forms = {form for known in (secret, bare) for form in _forms(known.strip())}
        together = forms.union(self._as_text)
        # Longest first: a secret within another must not tear it apart.
        self._as_text = sorted(together, key=lambda form: (-len(form), form))
        self._as_bytes = [form.encode() for form in self._as_text if len(form) >= _SHORTEST_IN_DATA]

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        for form in self._as_text:
            text = text.replace(form, REDACTED)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the bytes without secrets."""
        for form in self._as_bytes:
            data = data.replace(form, REDACTED.encode())
        return data


def _forms(secret: str) -> set[str]:
    if len(secret) < _SHORTEST:
        return set()
    escaped = (json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return {secret, quote(secret, safe=""), *escaped}
