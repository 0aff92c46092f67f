"""The one door to a terminal or a CI log: nothing from data steers it or reads as a command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Final

import click

from guardmark.app.run.error_output import tell
from guardmark.canon.visible import spell_hidden
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from guardmark.app.results.reporting import RunOutput
    from guardmark.reports.document.blocks import Document

EXIT_INTERRUPTED = 130
EXIT_NOT_SHOWN = 5
"""What was asked is not shown: too little was answered, or a gate is open."""
INTERRUPTED = "Interrupted. Answers so far are saved."
_STYLE = re.compile(r"(\x1b\[\d{1,2}m)")
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_LOGGING_COMMAND = re.compile(r"#(?=#\w*\[)")
_OBEYED_IN_JSON = re.compile(
    rf"{_LOGGING_COMMAND.pattern}|[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


LEVEL: Final = "guardmark.level"
"""Key of a click context under which it stands how much is to be said."""


def level() -> int:
    """Return how much is to be said: -1 with -q, 1 with -v, else 0."""
    context = click.get_current_context(silent=True)
    if context is None:
        return 0
    return int(context.meta.get(LEVEL, 0))


def visible(text: str) -> str:
    """Spell out what is hidden, and commands to a CI service: a line of `::`, or a `##name[`."""
    spelled = spell_hidden(text).replace("\t", "[U+0009]")
    return _LOGGING_COMMAND.sub("[U+0023]", _COMMAND.sub(r"\1[U+003A]", spelled))


def one_line(text: str, width: int) -> str:
    """Return a text on one line, cut to a width with an ellipsis."""
    squeezed = " ".join(spell_hidden(text).split())
    if len(squeezed) <= width:
        return squeezed
    return squeezed[: width - 1] + "…"


def in_line(text: str) -> str:
    """Return what is one line of ours, whatever line breaks the data in it hold."""
    return visible(text).replace("\n", "[U+000A]")


def echo(*lines: str, err: bool = False, styled: bool = False) -> None:
    """Print lines for people; of control sequences only our own colours, where there are any."""
    if not lines:
        return
    if styled:
        shown = map(_styled, lines)
    else:
        shown = map(in_line, lines)
    _print("\n".join(shown), err=err)


def _styled(line: str) -> str:
    """Return a line with control sequences spelled out, but for our own colours."""
    pieces = _STYLE.split(line)
    for at in range(0, len(pieces), 2):  # between them stand the colours
        pieces[at] = in_line(pieces[at])
    return "".join(pieces)


def echo_text(text: str) -> None:
    """Print a document that was drawn line by line."""
    _print(visible(text), nl=False)


def echo_raw(text: str) -> None:
    """Print what another program reads, as it is."""
    _print(text)


def echo_json(text: str) -> None:
    """Print JSON, with escapes for what a terminal or a CI service would obey: the same values."""
    escaped = _OBEYED_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    _print(escaped, nl=not text.endswith("\n"))


def _print(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print, with keys that this process has read from its environment redacted."""
    click.echo(KNOWN.text(text), nl=nl, err=err)


def drawn(document: Document, *, piped: int = 100) -> str:
    """Draw a document for the terminal there is; other readers get lines of a fixed width."""
    from guardmark.reports.render.terminal import render_terminal

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return render_terminal(document, width=_width(piped), colour=colour)


def _width(piped: int) -> int:
    """Return how wide the terminal is; other readers get a fixed width."""
    # COLUMNS holds for a terminal alone: programs that use readline set it for what they start.
    if sys.stdout.isatty():
        return shutil.get_terminal_size((piped, 24)).columns
    return piped


def echo_wrapped(*lines: str, piped: int = 100) -> None:
    """Print lines for people, those that are too long for the terminal on several."""
    width = _width(piped)
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        wrapped = textwrap.wrap(
            line,
            width,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        if len(line) <= width:  # stays as it is: columns are aligned by blanks
            echo(line)
        else:
            echo(*wrapped)


def echo_drawn(text: str) -> None:
    """Print a document that was drawn for a terminal, with the weights it was drawn with."""
    echo(*text.splitlines(), styled=True)


def tell_output(output: RunOutput, *, as_json: bool) -> None:
    """Print what a run came to, and which files were written."""
    if as_json:
        echo_json(output.summary_json)
        return
    for note in output.notes:
        tell_note(f"Note: {note}")
    if level() < 0:
        echo(*output.document.answer[:1])
        return
    if level() > 0:
        echo_drawn(drawn(output.whole))
    else:
        echo_drawn(drawn(output.document))
    for label, path in output.files:
        echo(f"{label:<10}{path}")


def tell_note(*lines: str) -> None:
    """Write lines to stderr that --quiet leaves out."""
    if level() >= 0:
        tell_line(*lines)


def tell_line(*lines: str) -> None:
    """Write lines to stderr, the first in place of a progress line where there may be one."""
    text = ""
    if sys.stderr.isatty():
        text = "\r\x1b[2K"
    for line in lines:
        text += f"{in_line(line)}\n"
    tell(text)


def same_command() -> str:
    """Return the command that goes on where this one ended."""
    words = [word for word in sys.argv[1:] if word != "--fresh"]
    return shlex.join(["guardmark", *words])


def tell_interrupted(state: str = "") -> int:
    """Say that the same command goes on where this one ended; return the exit code of that."""
    tell_line(f"{INTERRUPTED}{state}", f"To continue: {same_command()}")
    return EXIT_INTERRUPTED
