"""Regular expressions and keyword lists as a defense."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ALLOWED, Decision, Evidence, Outcome
from guardmark.core.sample import View
from guardmark.defenses.rules import BUILTIN_RULES, PatternRule
from guardmark.defenses.skipping import NOTHING_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from guardmark.core.sample import Prompt

FLAGS = {"I": re.IGNORECASE, "S": re.DOTALL, "M": re.MULTILINE, "X": re.VERBOSE}
"""Letter as written in a configuration to the flag of `re`."""

_WORDS = re.compile(r"\w+").findall
_Search = tuple["Callable[[str], re.Match[str] | None]", Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRule:
    """A rule, ready to be searched for."""

    name: str
    search: Callable[[str], re.Match[str] | None]
    words: tuple[str, ...] = ()


class PatternDefense:
    """Blocks what any of its rules finds; the reason names the rule.

    Rules without words are tried in order, then those whose words the text holds, in the order
    the words come; the first that matches decides. A match costs what Python's
    `re` costs: a rule with nested repetition can take exponential time on a hostile text.
    """

    __slots__ = ("_by_word", "_keywords", "_rules", "_whole_text", "files", "name", "view")

    threshold: float | None = None

    def __init__(
        self,
        name: str,
        rules: Iterable[CompiledRule],
        *,
        keywords: Sequence[str] = (),
        view: View = View.TEXT,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.view = view
        self.files = files
        self._whole_text = view is View.TEXT
        ready = [(rule, (rule.search, _blocked(rule.name))) for rule in rules]
        self._rules = tuple(search for rule, search in ready if not rule.words)
        self._by_word: dict[str, list[_Search]] = {}
        for rule, search in ready:
            for word in rule.words:
                self._by_word.setdefault(word, []).append(search)
        self._keywords = _keyword_search(keywords)

    def decide_now(self, prompt: Prompt) -> Decision:
        """Look for every rule in one prompt."""
        text = prompt.text if self._whole_text else prompt.shown(self.view)
        if text is None:
            return NOTHING_SHOWN[self.view]
        for search, blocked in self._rules:
            if search(text):
                return blocked
        if self._by_word:
            blocked_by_word = self._look_by_word(text)
            if blocked_by_word is not None:
                return blocked_by_word
        if self._keywords is not None:
            found = self._keywords.search(text)
            if found:
                return _blocked(f"keyword {found.group().casefold()!r}")
        return ALLOWED

    def _look_by_word(self, text: str) -> Decision | None:
        """Try the rules of which a word stands in the text, in the order of the words."""
        tried = set()
        by_word = self._by_word
        for word in _WORDS(text.lower()):
            for search, blocked in by_word.get(word, ()):
                if blocked.evidence not in tried:
                    tried.add(blocked.evidence)
                    if search(text):
                        return blocked
        return None


def _blocked(reason: str) -> Decision:
    return Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason=reason))


def _keyword_search(keywords: Sequence[str]) -> re.Pattern[str] | None:
    if not keywords:
        return None
    # Longest first: an alternation takes the first branch that fits, and the reason should
    # name the most telling keyword.
    parts = [_bordered(word) for word in sorted(set(keywords), key=lambda w: (-len(w), w))]
    return re.compile("|".join(parts), re.IGNORECASE)


def _bordered(word: str) -> str:
    before = r"(?<!\w)" if word[0].isalnum() else ""
    after = r"(?!\w)" if word[-1].isalnum() else ""
    return before + r"\s+".join(re.escape(piece) for piece in word.split()) + after


class BadPatterns(ConfigError):
    """Expressions that do not compile."""

    def __init__(self, faults: Sequence[tuple[int, str, tuple[int, int]]], named: str) -> None:
        self.faults = tuple(faults)
        super().__init__(named)


def compile_rules(
    rules: Iterable[PatternRule], *, flags: Sequence[str] = ()
) -> tuple[CompiledRule, ...]:
    """Compile rules, naming every one that is not a regular expression."""
    combined = re.RegexFlag(0)
    for letter in flags:
        combined |= FLAGS[letter]
    compiled, faults, named = [], [], []
    for index, rule in enumerate(rules):
        try:
            search = re.compile(rule.pattern, combined).search
            compiled.append(
                CompiledRule(name=rule.name, search=search, words=tuple(rule.words.split()))
            )
        except (re.error, OverflowError, RecursionError) as error:
            place = (getattr(error, "lineno", None) or 1, getattr(error, "colno", None) or 1)
            faults.append((index, f"is not a regular expression: {error}.", place))
            named.append(f"{rule.name}: is not a regular expression: {error}")
    if faults:
        raise BadPatterns(faults, "\n".join(named))
    return tuple(compiled)


def builtin_rules() -> tuple[CompiledRule, ...]:
    """Return the compiled built-in rules, ready for a `PatternDefense`."""
    return compile_rules(BUILTIN_RULES, flags=("I", "M"))


def read_lines(path: Path, *, shown_as: str) -> tuple[tuple[int, str], ...]:
    """Read a list file: one entry a line, blank lines and lines starting with # left out."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"The list {shown_as} cannot be read: {reason}.") from error
    # Only newlines end a line: str.splitlines would also cut at U+2028 inside an entry.
    stripped = ((n, line.strip()) for n, line in enumerate(text.split("\n"), start=1))
    lines = tuple((n, line) for n, line in stripped if line and not line.startswith("#"))
    if not lines:
        raise ConfigError(f"The list {shown_as} holds no entry: one a line, # for comments.")
    return lines
