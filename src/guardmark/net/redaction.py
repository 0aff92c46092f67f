"""Secrets in text and bytes, found in every form in which a service may send them back.

A secret is looked for as it is, backwards, in other letter cases, in hexadecimal digits, in Base32
and Base64 (at any place in longer data), and all of these behind escapes of JSON, of URLs and of
HTML, several deep and mixed. Text without such an escape is only searched for fixed strings.
"""

from __future__ import annotations

import os
import re
from base64 import b32encode, b64decode, b64encode
from html.entities import html5
from string import ascii_letters, digits
from typing import TYPE_CHECKING
from urllib.parse import quote

from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REDACTED = "[redacted]"
_MARK = REDACTED.encode()
_SHORTEST = 4
_SHORTEST_IN_DATA = 8
_SHORTEST_WORD = 16
_LEVELS = 6  # escapes within escapes that are taken away
_SLACK = 64
_START = 12  # bytes of a form that most data is searched for: many forms of a key begin alike
_SCHEMES = ("Bearer ", "Basic ", "Token ", "ApiKey ", "Api-Key ")
_ENTITIES = {
    name.rstrip(";").encode(): text.encode() for name, text in html5.items() if len(text) == 1
}
_ESCAPE = re.compile(
    rb"[\\%]u([0-9a-fA-F]{4})|(?:\\x|%)([0-9a-fA-F]{2})|\\([^0-9A-Za-z])"
    rb"|&#0*([0-9]{1,7});?|&#[xX]0*([0-9a-fA-F]{1,6});?|&([A-Za-z][A-Za-z0-9]{1,30});"
)
_VARIABLE = re.compile(
    r"""(?:export\s+)?([A-Za-z_]\w*)\s*=\s*"""
    r"""(?:'([^']*)'|"([^"\\$]*)"|([^\s'"$`\\]*))(?:\s+#.*)?""",
    re.ASCII,
)
_BEFORE_ESCAPE = b"\\%&"
_OF_ANY_FORM = {*(ascii_letters + digits + "+/-_=#;").encode(), *_BEFORE_ESCAPE}
"""Of Base64, of hexadecimal digits and of escapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Bytes that tell a secret, and whether the characters around them tell a part of it too."""

    name: str
    text: bytes
    before: bool = False
    after: bool = False


class Redactor:
    """Replaces the secrets it was told by a mark, in text and in bytes."""

    __slots__ = ("_escapes", "_forms", "_reach", "_secrets", "_short", "_starts")

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}
        self._short: list[str] = []
        self._forms: list[_Form] = []
        self._starts: tuple[bytes, ...] = ()
        self._escapes: tuple[re.Pattern[bytes], ...] = ()
        self._reach = 0

    def hide(self, secret: str, name: str = "") -> None:
        """Redact this secret from now on; the name is the variable that holds it."""
        for known in _readings(secret):
            if len(known) >= _SHORTEST:
                self._secrets[known] = name or self._secrets.get(known, "")
        # Longest first: a secret within another must not tear it apart.
        ordered = sorted(self._secrets, key=lambda each: (-len(each), each))
        self._short = [form for each in ordered for form in _short_forms(each)]
        long = [each for each in ordered if len(each) >= _SHORTEST_IN_DATA]
        self._forms = [form for each in long for form in _forms(each, self._secrets[each])]
        self._starts = tuple({form.text[:_START] for form in self._forms})
        self._escapes = _relevant_escapes(long) if long else ()
        self._reach = _SLACK + max((len(form.text) for form in self._forms), default=0)

    @property
    def is_empty(self) -> bool:
        """Whether no secret is known."""
        return not self._secrets

    @property
    def overlap(self) -> int:
        """Bytes that two pieces of a file must share, so that no secret falls between them."""
        return 12 * self._reach

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self.data(data)
        if clean is not data:
            text = clean.decode("utf-8", "replace")
        for form in self._short:
            text = text.replace(form, REDACTED)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the bytes without secrets; the same object where there is none."""
        # What most data can be left with: fixed strings, and an escape, are not in it.
        if self._may_hold(data):
            spans = sorted((start, end) for start, end, _ in self._spans(data))
            pieces, at = [], 0
            for start, end in spans:
                if start >= at:
                    pieces += [data[at:start], _MARK]
                at = max(at, end)
            data = b"".join([*pieces, data[at:]])
        # UTF-16 and UTF-32, which JSON may be written in.
        if b"\0" in data and any(self._spans(data.replace(b"\0", b""))):
            return _MARK
        return data

    def _may_hold(self, data: bytes) -> bool:
        """Tell whether the bytes have to be searched: loops, as this is asked of every answer."""
        for start in self._starts:
            if start in data:
                return True
        for escape in self._escapes:  # noqa: SIM110
            if escape.search(data):
                return True
        return False

    def names_in(self, data: bytes) -> frozenset[str]:
        """Return the variables whose secrets the bytes hold; words that are no key do not count."""
        return frozenset(name for _, _, name in self._spans(data) if name)

    def named(self) -> Redactor:
        """Return a redactor for searching files: what has a name and is no mere word."""
        searching = Redactor()
        for secret, name in self._secrets.items():
            if name and not is_word(secret):
                searching.hide(secret, name)
        return searching

    def _spans(self, data: bytes) -> Iterator[tuple[int, int, str]]:
        yield from self._plain(data)
        for start, end in self._windows(data):
            yield from self._escaped(data[start:end], start)

    def _plain(self, data: bytes) -> Iterator[tuple[int, int, str]]:
        for form in self._forms:
            at = data.find(form.text)
            while at >= 0:
                end = at + len(form.text)
                start = at - (form.before and _is_base64(data[at - 1 : at]))
                yield start, end + (form.after and _is_base64(data[end : end + 1])), form.name
                at = data.find(form.text, end)

    def _windows(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Return the pieces around escapes that could stand for a part of a secret."""
        places = sorted(match.span() for escape in self._escapes for match in escape.finditer(data))
        start, end = 0, -1
        for first, last in places:
            left = max(0, first - self._reach)
            if left > end:
                if end > 0:
                    yield start, end
                while left and data[left - 1] in _BEFORE_ESCAPE:
                    left -= 1
                start = left
            end = last + self._reach
        if end > 0:
            yield start, end

    def _escaped(self, data: bytes, offset: int) -> Iterator[tuple[int, int, str]]:
        """Take escapes away, and again those that were behind them; look at what is there then."""
        view = data
        for _ in range(_LEVELS):
            plain = _ESCAPE.sub(_meaning, view)
            if plain == view:
                return
            view = plain
            if any(map(view.__contains__, self._starts)):
                yield from self._mapped(data, offset)
                return

    def _mapped(self, data: bytes, offset: int) -> Iterator[tuple[int, int, str]]:
        """As above, and note for each byte where it came from."""
        origins = [(offset + at, offset + at + 1) for at in range(len(data))]
        for _ in range(_LEVELS):
            plain, before, at = bytearray(), origins, 0
            origins = []
            for match in _ESCAPE.finditer(data):
                meaning = _meaning(match)
                plain += data[at : match.start()] + meaning
                origins += before[at : match.start()]
                at = match.end()
                origins += [(before[match.start()][0], before[at - 1][1])] * len(meaning)
            data = bytes(plain + data[at:])
            origins += before[at:]
            for start, end, name in self._plain(data):
                yield origins[start][0], origins[end - 1][1], name


KNOWN = Redactor()
"""What this process read from its environment for a service: nothing that it writes may hold it."""


def read_variables(text: str, shown_as: str, is_secret: Callable[[str], bool]) -> Iterator[str]:
    """Set the variables that lines NAME=VALUE state; yield those that were set before."""
    stated: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if not line or line.startswith("#"):
            continue
        match = _VARIABLE.fullmatch(line)
        if match is None:
            message = f"{shown_as}:{number}: is no line NAME=VALUE"  # it may hold a key
            raise ConfigError(f"{message} (put a value with spaces, $ or quotes in '...').")
        name, *values = match.groups()
        stated[name] = next(filter(None, values), "")
    for name, value in stated.items():
        if name in os.environ:
            yield name
            continue
        os.environ[name] = value
        if is_secret(name):
            KNOWN.hide(value, name)


def is_word(secret: str) -> bool:
    """Tell a stand-in such as `not-needed` from a key: files may well hold the word."""
    return len(secret) < _SHORTEST_WORD and secret.replace("-", "").replace("_", "").isalpha()


def _readings(secret: str) -> Iterator[str]:
    """Return a secret without the scheme of its header, and what a Basic header holds."""
    scheme = next((s for s in _SCHEMES if secret.startswith(s)), "")
    bare = secret[len(scheme) :].strip()
    yield bare
    if scheme == "Basic ":
        try:
            user, colon, password = b64decode(bare, validate=True).decode().partition(":")
        except ValueError:
            return
        if colon:
            yield f"{user}:{password}"
            yield password


def _short_forms(secret: str) -> tuple[str, ...]:
    """Return what a text is searched for when a secret is too short to be looked for in data."""
    is_short = len(secret) < _SHORTEST_IN_DATA
    slashed = secret.replace("\\", "\\\\").replace('"', '\\"')
    return (secret, quote(secret, safe=""), slashed) if is_short else ()


def _forms(secret: str, name: str) -> Iterator[_Form]:
    """Return what data is searched for: plain, backwards, in other cases and common encodings."""
    plain = secret.encode("utf-8", "surrogateescape")
    quoted, view = quote(plain, safe="").encode(), plain
    seen = {plain, quoted, quote(plain).encode(), plain.replace(b" ", b"+"), plain[::-1]}
    seen |= {plain.upper(), plain.lower(), plain.swapcase(), b32encode(plain).rstrip(b"=")}
    for _ in range(_LEVELS):  # a key that itself looks like an escape
        view = _ESCAPE.sub(_meaning, view)
        seen.add(view)
    written = {plain, quoted, plain.replace(b"/", b"\\/"), b64encode(plain).rstrip(b"=")}
    hexes = {each.hex(" ").replace(" ", between) for each in written for between in ("", *" :-")}
    seen.update(form.encode() for each in hexes for form in (each, each.upper()))
    for text in sorted(seen, key=lambda each: (-len(each), each)):
        if len(text) >= _SHORTEST_IN_DATA:
            yield _Form(name=name, text=text)
    for each in sorted(written):
        yield from _base64_forms(each, name)


def _base64_forms(data: bytes, name: str) -> Iterator[_Form]:
    """Return the characters that are the same whatever stands around, for each alignment."""
    for shift, skipped in enumerate((0, 2, 3)):
        bits = 8 * (shift + len(data))
        core = b64encode(b"\0" * shift + data)[skipped : bits // 6]
        for text in {core, core.translate(bytes.maketrans(b"+/", b"-_"))}:
            yield _Form(name=name, text=text, before=bool(shift), after=bool(bits % 6))


def _is_base64(character: bytes) -> bool:
    return character.isalnum() or character in {b"+", b"/", b"-", b"_"}


def _relevant_escapes(secrets: Iterable[str]) -> tuple[re.Pattern[bytes], ...]:
    """Match an escape that may stand for a byte of a secret in any form, or of another escape."""
    codes = {code for each in secrets for code in each.encode("utf-8", "surrogateescape")}
    codes |= _OF_ANY_FORM
    points = {ord(char) for each in secrets for char in each} | codes
    signs = b"".join(re.escape(bytes([c])) for c in sorted(codes) if not chr(c).isalnum())
    pairs = b"|".join(f"{code:02x}".encode() for code in sorted(codes))
    wide = b"|".join(f"{point:04x}".encode() for point in sorted(points))
    decimal = b"|".join(str(point).encode() for point in sorted(points))
    narrow = b"|".join(f"{point:x}".encode() for point in sorted(points))
    values = {chr(point).encode("utf-8", "surrogatepass") for point in points}
    named = b"|".join(sorted(name for name, value in _ENTITIES.items() if value in values))
    # One pattern for each first byte: it is what the search is fast by.
    return (
        re.compile(rb"\\(?:[" + signs + rb"]|u(?i:" + wide + rb")|[xX](?i:" + pairs + rb"))"),
        re.compile(rb"%(?:u(?i:" + wide + rb")|(?i:" + pairs + rb"))"),
        re.compile(
            rb"&(?:#0*(?:" + decimal + rb")(?![0-9])|#[xX]0*(?i:" + narrow + rb")(?![0-9a-fA-F])"
            rb"|(?:" + named + rb");)"
        ),
    )


def _meaning(match: re.Match[bytes]) -> bytes:
    """Return the bytes that an escape stands for, or the escape where it stands for none."""
    wide, narrow, sign, decimal, hexadecimal, name = match.groups()
    if narrow:
        return bytes([int(narrow, 16)])
    if sign:
        return bytes(sign)
    if name:
        return _ENTITIES.get(name, bytes(match[0]))
    point = int(decimal) if decimal else int(wide or hexadecimal, 16)
    return chr(point).encode("utf-8", "surrogatepass") if point <= 0x10FFFF else bytes(match[0])
