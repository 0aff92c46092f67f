"""What people are told when something is wrong, on one page, and in words that a colleague would use.

`artifacts/messages.md` holds every message with its place, to be read one after the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "guardmark"
PAGE = ROOT / "artifacts" / "messages.md"
ERRORS = {
    node.name
    for node in ast.parse((PACKAGE / "core" / "errors.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ClassDef)
} - {"UnknownName"}
"""Errors whose first argument is the whole message."""
STRANGE = re.compile(
    r"\b(mend(ed)?|mumbles?|beware|whence|thereof|shall|lest|naught|ought|hither|forth|perchance)\b",
    re.IGNORECASE,
)
BEGINS = re.compile(r"[A-Z0-9{'\"`(-]|repeats |warmup |\w*[_.:/]")
"""A sentence, something filled in, an option, or the name of a setting or file."""
Located = tuple[str, int, str]
"""A file, a line in it, and what stands there."""
AFTER_A_PLACE = {"app/parts/building.py", "datasets/checks/mix.py"}
"""Where messages go on behind the place of a mistake in a file."""


def _text(node: ast.expr) -> str | None:
    """Return the words of a message; what is filled in stands in braces."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        ]
        return "".join(parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None or right is None else left + right
    return None


@cache
def _sources() -> tuple[list[Located], list[Located]]:
    """Return the messages of errors, and all strings, of every module."""
    messages, strings = list[Located](), list[Located]()
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append((where, node.lineno, node.value))
            elif isinstance(node, ast.Call) and node.args and _name(node.func) in ERRORS:
                text = _text(node.args[0])
                if text is not None:
                    messages.append((where, node.lineno, text))
    return messages, strings


@pytest.fixture(scope="module")
def messages() -> list[Located]:
    """The messages of errors: file, line, words."""
    return _sources()[0]


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def test_all_messages_stand_on_one_page(messages: list[Located]) -> None:
    """A person reads them in a sitting, and hears which ones nobody would say."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"- `{path}:{line}` {' / '.join(text.split(chr(10)))}" for path, line, text in messages
    ]
    PAGE.write_text("\n".join(["# Messages", "", *lines, ""]), encoding="utf-8")
    assert len(messages) > 200


def test_a_message_is_a_sentence(messages: list[Located]) -> None:
    """It begins as one, and no line of it ends in the middle of one."""
    wrong = [
        (path, line, text)
        for path, line, text in messages
        if not (BEGINS.match(text) or path.removeprefix("src/guardmark/") in AFTER_A_PLACE)
        or text.rstrip().endswith((",", ";", " and", " or"))
    ]
    assert wrong == []


def test_a_message_uses_the_words_of_today(messages: list[Located]) -> None:
    """A riddle costs the reader the time that the message should save."""
    assert [each for each in messages if STRANGE.search(each[2])] == []


def test_a_message_names_no_internal_thing(messages: list[Located]) -> None:
    """Types of Python and arguments of ours are no words of whoever reads it."""
    inside = re.compile(r"\b(NoneType|tuple|kwargs|isinstance|frozenset)\b")
    told = [(path, line, re.sub(r"\{[^}]*\}", "", text)) for path, line, text in messages]
    assert [each for each in told if inside.search(each[2])] == []


RIDDLES = re.compile(
    r"what follows|matter of price|stays closed|beware|to lean on|undefined share"
    r"|\b0 without a known end|scores claim|\bfell, fallen|refuses us|how sure one"
    r"|this installation can|\bmends?\b|\bmended\b|mumbles?|what is so\b|nobody could read"
    r"|stands twice|is there already|are spent\b|worse than useless",
    re.IGNORECASE,
)
"""Words that a reader had to read twice, and nobody says."""


def _sentences() -> Iterator[Located]:
    """Yield what people read: strings of the sources, words of reports and help, pages."""
    yield from _sources()[1]
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "README.md"]
    told = [*PACKAGE.glob("cli/*.toml"), *PACKAGE.glob("reports/document/*.toml")]
    for path in sorted((*pages, *told)):
        if "decisions" not in path.parts:  # an ADR is never edited
            for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                yield path.relative_to(ROOT).as_posix(), at, line


def test_no_page_and_no_sentence_is_a_riddle() -> None:
    """Terminal, report, help and docs say what a colleague would say."""
    sentences = list(_sentences())
    assert len(sentences) > 10_000
    assert [each for each in sentences if RIDDLES.search(each[2])] == []
