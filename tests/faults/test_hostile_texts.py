"""Texts that turn a program that reads them against its user: one line of `TEXTS` each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.journeys.test_hostile_fields import COMMAND, CONTROL, check_run, lay_out, typed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TEXTS: Final = {
    "a formula": "=1+cmd|' /C calc'!A0",
    "a formula behind a blank": "  =HYPERLINK('x')",
    "a formula of full-width signs": "\uff1d1\uff0b1",
    "a formula behind an invisible sign": "\u200b=1+1",
    "a carriage return": "a\rb",
    "a return before a formula": "a\r=1+1",
    "lines of other systems": "a\r\nb\x85c\u2028d\u2029e",
    "a byte that ends strings": "a\x00b",
    "a mark of byte order": "\ufeffa",
    "colours of a terminal": "\x1b[31mred\x1b[0m \x9b31m",
    "a title of a terminal": "\x1b]0;title\x07",
    "text from right to left": "\u202etxt.exe\u202c \u2066a\u2069",
    "a command to a CI service": "x\n::error file=a::b",
    "a command to another CI service": "x\n##vso[task.setvariable]y\n##[error]z",
    "a script": "<script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "the end of a script": "</script></style></title>]]><!--",
    "the end of XML data": "]]></failure><testcase/>",
    "a link of Markdown": "[x](javascript:alert(1)) ![y](http://z.invalid/p.png) | a | b |",
    "a heading of Markdown": "# Passed\n\n---\n\n```",
    "quotes": "\"'`,;\t\\",
    "a path": "../../../etc/passwd",
    "a placeholder": "{0} {name} %s ${HOME} $(id) {{7*7}}",
    "half of a pair": "\U0001f600\ufe0f\u200d",
    "letters with many marks": "e" + "\u0301" * 200,
    "a long word": "x" * 9_000,
}
"""Name to text: to add a case, add a line."""


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_is_data_wherever_it_stands(case: str, tmp_path: Path) -> None:
    """The run holds, every file parses to the same cells, and no line printed obeys the text."""
    values = [TEXTS[case]]
    lay_out(tmp_path, values, defenses=("words", "none", "broken"))
    code, *printed = typed(tmp_path, "run", "bench.yaml", "-o", "out")
    assert code == 5, printed[1]  # one defense answers nothing, which is said
    check_run(tmp_path)
    for command in ("show out --bypasses --full", "show out --errors", "report out"):
        code, *more = typed(tmp_path, *command.split())
        assert code in {0, 5}
        printed += more
    for text in printed:
        assert not COMMAND.search(text)
        assert not CONTROL.search(text)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    for planted in ("<script>document", "<img src=x", "javascript:", "http://z.invalid"):
        assert f'="{planted}' not in page
        assert planted == "javascript:" or planted.startswith("http") or planted not in page
