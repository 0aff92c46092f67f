"""Keys written out in a configuration: found by name and by shape, refused, never repeated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError, as_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.config.source import Place, Source

_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|gh[opsur]_\w{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|hf_\w{20,}"
    r"|gsk_\w{20,}|npm_\w{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|(?i:bearer)\s+[\w.~+/=-]{16,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----",
    re.ASCII,
)
"""Keys of well-known services, tokens of the web, and what goes before a token in a header."""
_WORDS: Final = re.compile(
    r"(?:^|[^a-z]|[a-z]+)(?:key|token|secret|password|passwd|passphrase|auth|authorization"
    r"|cookie|credentials?|signature)(?:$|[^a-z])"
    r"|(?:^|[^a-z])(?:keys|pass|pwd|pw|cred|creds|sig|jwt|bearer)(?:$|[^a-z])"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_USER: Final = re.compile(r"://[^/?#\s]*@")
_PARAMETER: Final = re.compile(r"[?&;#]([^=&;#]+)=[^&;#]")
_BY_NAME: Final = (("headers",), ("query",))
"""Settings whose own keys are names of headers and of parameters."""
_PLANTED: Final = frozenset({"system_prompt"})
"""Texts in which a made-up key may be planted on purpose."""


def require_no_literal_secret(document: object, source: Source) -> None:
    """Refuse settings in which a key is written out; the message never repeats it."""
    places = dict.fromkeys(_literal_secrets(document, ()))
    if places:
        raise ConfigError(
            "\n".join(
                f"{source.where(place)}: {'.'.join(map(as_word, place))}: {what}, which never "
                "stands in the file. Set an environment variable to it and name that: {env: NAME}, "
                "as a value under headers or query, or as the whole url."
                for place, what in places
            )
        )


def names_secret(name: str) -> bool:
    """Tell whether a header or a parameter of this name carries a secret."""
    return _WORDS.search(_CAMEL.sub("-", name).lower()) is not None


def _literal_secrets(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            below = (*place, str(key))
            is_named = place[-1:] in _BY_NAME and isinstance(inner, str | int | float)
            if _is_secret_text(str(key)):
                yield place, "one of its names holds a key"
            elif is_named and names_secret(below[-1]):
                yield below, "this holds a secret"
            elif below[-1] not in _PLANTED:
                yield from _literal_secrets(inner, below)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _literal_secrets(inner, (*place, str(index)))
    elif isinstance(value, str) and _is_secret_text(value):
        yield place, "this holds what looks like a key or a password"


def _is_secret_text(text: str) -> bool:
    """Tell whether a text has the shape of a key, or is an address that carries one."""
    if _SHAPES.search(text):
        return True
    if not _ADDRESS.match(text):
        return False
    return bool(_USER.search(text)) or any(map(names_secret, _PARAMETER.findall(text)))
