"""Logs of real traffic, drawn for people to label: read, redacted, without repeats, sampled.

A log is JSONL, CSV or Parquet with one message a row, or spans of OpenTelemetry in JSON with the
GenAI attributes. Personal data are replaced before anything is written.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError, DatasetError, counted, needs
from guardmark.core.values import dataclass
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Redactor = Callable[[str], tuple[str, int]]
    Rows = Callable[[Path], Iterable[Mapping[str, Any]]]

_TEXTS: Final = ("text", "prompt", "input", "question", "content", "message", "messages")
_INPUT: Final = "gen_ai.input.messages"
_USER_EVENT: Final = "gen_ai.user.message"
_NUMBERED: Final = re.compile(r"gen_ai\.prompt\.(\d+)\.content")

_ILL_FORMED: Final = (AttributeError, KeyError, TypeError, RecursionError)

_CARD: Final = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_EMAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE: Final = re.compile(r"(?<![\w.,-])(?:\+|00|0|\()\d[\d ()/-]{6,16}\d(?![\w.,-]?\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficDraw:
    """Texts drawn from logs, and what was left out on the way.

    Attributes:
        redaction: What was used against personal data.
        read: Messages of users in the logs.
        repeats: Left out: equal to an earlier one but for case, spacing and redaction.
        redacted: Pieces of personal data replaced, in the texts drawn.
    """

    texts: tuple[str, ...]
    redaction: str
    read: int
    repeats: int
    redacted: int

    @property
    def said(self) -> tuple[str, str]:
        """What is printed of it."""
        drawn, known = len(self.texts), {"rules": "e-mail, phone, card, IBAN", "none": "nothing"}
        looked = known.get(self.redaction, self.redaction)
        of, repeats = counted(self.read, "message"), counted(self.repeats, "repeat")
        return (
            f"drawn     {drawn:,} of {of} ({repeats} left out)",
            f"redacted  {counted(self.redacted, 'piece')} of personal data (looked for: {looked})",
        )


def draw_traffic(
    paths: Sequence[Path], rows: Rows, *, count: int, seed: int = 0, redaction: str = "rules"
) -> TrafficDraw:
    """Draw messages of users at random; the same logs and seed give the same texts.

    Only the smallest hashes are kept while reading, so a log of any length takes little memory
    beside one hash a message.
    """
    redact = _redactor(redaction)
    seen: set[bytes] = set()
    chosen: dict[bytes, str] = {}
    read = 0
    for path in paths:
        for text in read_log(path, rows):
            read += 1
            # Numbers and names that differ only where they are taken out make no new message.
            plain = " ".join(redact_by_rules(text)[0].casefold().split())
            key = sha256(f"{seed}\x1f{plain}".encode(errors="replace")).digest()
            if not plain or key in seen:
                continue
            seen.add(key)
            chosen[key] = text
            if len(chosen) >= 2 * count:
                chosen = dict(sorted(chosen.items())[:count])
    redactions = [redact(chosen[key]) for key in sorted(chosen)[:count]]
    return TrafficDraw(
        texts=tuple(text for text, _ in redactions),
        redaction=redaction,
        read=read,
        repeats=read - len(seen),
        redacted=sum(pieces for _, pieces in redactions),
    )


def write_page(beside: Path, rows: Sequence[Mapping[str, str]], words: Sequence[str]) -> Path:
    """Write a page on which a person labels messages without a network, saved as JSON lines."""
    data = json.dumps({"name": f"{beside.stem}.jsonl", "rows": rows, "words": words})
    page = Path(__file__).with_name("label.html").read_text(encoding="utf-8")
    path = beside.with_suffix(".html")
    with whole_file(path) as file:
        # No tag of a message may end the data.
        file.write(page.replace("{{ data }}", data.replace("<", "\\u003c")).encode())
    return path


def read_log(path: Path, rows: Rows) -> Iterator[str]:
    """Yield the messages of users in a log, whose rows are read by a function of the caller."""
    found = False
    try:
        for row in _document(path) if path.suffix.lower() == ".json" else rows(path):
            for text in _texts(row):
                found = True
                yield text
    except (*_ILL_FORMED, OSError, ValueError) as error:
        is_shape = isinstance(error, _ILL_FORMED)
        reason = "a row or a span is not built as chat logs are" if is_shape else str(error)
        reason = getattr(error, "strerror", None) or reason
        raise DatasetError(
            f"The log {path} cannot be read: {reason}.\n"
            "A log is JSONL, CSV or Parquet, or spans of OpenTelemetry as JSON."
        ) from error
    if not found:
        raise DatasetError(
            f"The log {path} holds no message of a user.\n"
            f"Looked for: {', '.join(_TEXTS)}; in spans {_INPUT}, gen_ai.prompt.N.content and "
            f"the event {_USER_EVENT}."
        )


def _document(path: Path) -> Iterable[Mapping[str, Any]]:
    document: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    if isinstance(document, list):
        return document
    return [document]


def _texts(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what users say in a row: of spans each one's last message."""
    if "resourceSpans" in row:
        for resource in row["resourceSpans"] or ():
            for scope in resource.get("scopeSpans") or ():
                for span in scope.get("spans") or ():
                    yield from _span_text(span)
    elif isinstance(row.get("attributes"), dict | list):
        yield from _span_text(row)
    else:
        value = next((row[name] for name in _TEXTS if row.get(name)), None)
        yield from _said(value)


def _span_text(span: Mapping[str, Any]) -> Iterator[str]:
    attributes = _attributes(span.get("attributes"))
    if _INPUT in attributes:
        yield from _said(attributes[_INPUT])
        return
    prompts = []
    for key, value in attributes.items():
        numbered = _NUMBERED.match(key)
        if numbered:
            prompts.append((int(numbered[1]), value))
    for number, value in sorted(prompts, reverse=True):
        if attributes.get(f"gen_ai.prompt.{number}.role", "user") == "user":
            yield from _said(value)
            return
    events = [each for each in span.get("events") or () if each.get("name") == _USER_EVENT]
    for event in events[-1:]:
        yield from _said(_attributes(event.get("attributes")).get("content"))


def _attributes(stated: object) -> dict[str, Any]:
    """Return attributes as OTLP writes them (a list of typed values), or as plain objects."""
    if isinstance(stated, dict):
        return stated
    pairs = stated if isinstance(stated, list) else ()
    return {each["key"]: next(iter(each.get("value", {}).values()), None) for each in pairs}


def _said(value: object) -> Iterator[str]:
    """Yield the text of a message, or of the last message of a user in a list of them."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        value = json.loads(value)
    if isinstance(value, list):
        users = [each for each in value if isinstance(each, dict) and each.get("role") == "user"]
        last = users[-1] if users else {}
        parts = last.get("parts", last.get("content", ""))
        if isinstance(parts, list):
            pieces = [each.get("content", each.get("text", "")) for each in parts]
            parts = "\n".join(piece for piece in pieces if isinstance(piece, str) and piece)
        value = parts
    if isinstance(value, str) and value.strip():
        yield value


def _redactor(name: str) -> Redactor:
    if name == "none":
        return lambda text: (text, 0)
    if name == "rules":
        return redact_by_rules
    return _presidio()


def redact_by_rules(text: str) -> tuple[str, int]:
    """Replace e-mail addresses, IBANs, card and phone numbers; names and streets stay.

    Card numbers must pass the Luhn check, so that order numbers are kept.
    """
    count = 0

    def put(word: str, is_right: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            nonlocal count
            if not is_right(match[0]):
                return match[0]
            count += 1
            return f"<{word}>"

        return replace

    for word, pattern, is_right in (
        ("EMAIL", _EMAIL, bool),
        ("IBAN", _IBAN, bool),
        ("CARD", _CARD, _passes_luhn),
        ("PHONE", _PHONE, bool),
    ):
        text = pattern.sub(put(word, is_right), text)
    return text, count


def _passes_luhn(number: str) -> bool:
    digits = [int(sign) for sign in number if sign.isdigit()][::-1]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


_NAMES: Final = "en_core_web_lg"


def _presidio() -> Redactor:
    missing = "presidio-analyzer and presidio-anonymizer (--redact rules needs nothing)"
    with needs(f"Redacting with presidio needs {missing}", "presidio"):
        from presidio_analyzer import AnalyzerEngine
        from presidio_anonymizer import AnonymizerEngine
        from spacy.util import is_package
    if not is_package(_NAMES):  # presidio would fetch it by itself, unasked
        raise ConfigError(
            f"Presidio finds names with the spaCy model {_NAMES}, which is not installed.\n"
            f"Install it: python -m spacy download {_NAMES}, or take --redact rules."
        )
    analyzer, anonymizer = AnalyzerEngine(), AnonymizerEngine()

    def redact(text: str) -> tuple[str, int]:
        entities = analyzer.analyze(text=text, language="en")
        # Its own rules find what it leaves: numbers without words around them.
        done, count = redact_by_rules(anonymizer.anonymize(text, entities).text)
        return done, len(entities) + count

    return redact
