"""Regular expressions and keyword lists as a defense."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator

from guardmark.config.deadline import PATTERN_TIMEOUT_S, TimedSettings
from guardmark.config.source import read_text
from guardmark.core.errors import BadSettings, ConfigError
from guardmark.core.outcome import ALLOWED, Decision, Evidence, Outcome
from guardmark.core.protocols import Capabilities
from guardmark.core.sample import View
from guardmark.core.values import dataclass
from guardmark.defenses.baseline import NOTHING_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt

FLAGS = {"I": re.IGNORECASE, "S": re.DOTALL, "M": re.MULTILINE, "X": re.VERBOSE}
"""Letter as written in a configuration to the flag of `re`."""

RULES_FILE = Path(__file__).with_name("rules.toml")
"""The built-in rules; its hash is part of a run's fingerprint: other rules are another defense."""
_WORDS = re.compile(r"\w+").findall
_Search = tuple["Callable[[str], re.Match[str] | None]", Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRule:
    """One regular expression with a name for reports."""

    name: str
    pattern: str
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRule:
    """A rule, ready to be searched for.

    Attributes:
        name: What reports call it.
        search: Its search.
        words: Words of which a text must hold one before it is searched; none for every text.
        reads_roles: Whether it searches the roles, too, that are written before the messages of a
            conversation. A rule about texts that pretend to be another role does not, and neither
            does one with words.
    """

    name: str
    search: Callable[[str], re.Match[str] | None]
    words: tuple[str, ...] = ()
    reads_roles: bool = True


class PatternDefense:
    """Blocks what any of its rules finds; the reason names the rule.

    Rules without words come first, then those whose words the text holds. A rule with nested
    repetition can take exponential time, so a call longer than `timeout_s` is an error.
    """

    __slots__ = (
        "_by_word",
        "_is_labelled",
        "_keywords",
        "_rules",
        "_rules_of_words",
        "_whole_text",
        "files",
        "name",
        "timeout_s",
        "view",
    )

    def __init__(
        self,
        name: str,
        rules: Iterable[CompiledRule],
        *,
        keywords: Sequence[str] = (),
        view: View = View.TEXT,
        files: tuple[Path, ...] = (),
        timeout_s: float | None = PATTERN_TIMEOUT_S,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.view = view
        self.files = files
        self._whole_text = view is View.TEXT
        self._is_labelled = view is View.CONVERSATION
        always: list[_Search] = []
        of_words: list[_Search] = []
        self._by_word: dict[str, list[_Search]] = {}
        for rule in rules:
            search = (rule.search, _blocked(rule.name))
            if rule.words:
                for word in rule.words:
                    self._by_word.setdefault(word, []).append(search)
            elif rule.reads_roles:
                always.append(search)
            else:
                of_words.append(search)
        self._rules = tuple(always)
        self._rules_of_words = tuple(of_words)
        self._keywords = _keyword_search(keywords)

    @property
    def capabilities(self) -> Capabilities:
        """What is stated of it; a search of `re` lets nothing else run."""
        return Capabilities(
            view=self.view,
            timeout_s=self.timeout_s,
            holds_interpreter=True,
            files=self.files,
        )

    def decide(self, prompt: Prompt) -> Decision:
        """Look for every rule in one prompt."""
        text: str | None
        if self._whole_text:
            text = prompt.words
        else:
            text = prompt.shown(self.view)
        if text is None:
            return NOTHING_SHOWN[self.view]
        for search, blocked in self._rules:
            if search(text):
                return blocked
        if self._by_word or self._rules_of_words:
            words: str | None = text
            if self._is_labelled:
                words = prompt.shown(self.view, is_labelled=False)
            blocked_by_word = self._look_at_words(words or "")
            if blocked_by_word is not None:
                return blocked_by_word
        if self._keywords is not None:
            match = self._keywords.search(text)
            if match:
                return _blocked(f"keyword {match.group().casefold()!r}")
        return ALLOWED

    def _look_at_words(self, text: str) -> Decision | None:
        """Try the rules that read no roles; those with words where one stands in the text."""
        for search, blocked in self._rules_of_words:
            if search(text):
                return blocked
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
    longest_first = sorted(set(keywords), key=lambda word: (-len(word), word))
    return re.compile("|".join(map(_bordered, longest_first)), re.IGNORECASE)


def _bordered(word: str) -> str:
    """Return a pattern that finds a keyword as whole words, with any blanks between these.

    A keyword that begins or ends with a digit is found in longer numbers.
    """
    pattern = r"\s+".join(re.escape(piece) for piece in word.split())
    if word[0].isalpha():
        pattern = rf"(?<!\w){pattern}"
    if word[-1].isalpha():
        pattern = rf"{pattern}(?!\w)"
    return pattern


class BadPatterns(ConfigError):
    """Expressions that do not compile."""

    def __init__(self, faults: Sequence[tuple[int, str, tuple[int, int]]], named: str) -> None:
        self.faults = tuple(faults)
        super().__init__(named)


def compile_rules(
    rules: Iterable[PatternRule], *, flags: Sequence[str] = (), reads_roles: bool = True
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
                CompiledRule(
                    name=rule.name,
                    search=search,
                    words=tuple(rule.words.split()),
                    reads_roles=reads_roles,
                )
            )
        except (re.error, OverflowError, RecursionError) as error:
            position = (getattr(error, "lineno", None) or 1, getattr(error, "colno", None) or 1)
            faults.append((index, f"is not a regular expression: {error}.", position))
            named.append(f"{rule.name}: is not a regular expression: {error}")
    if faults:
        raise BadPatterns(faults, "\n".join(named))
    return tuple(compiled)


def builtin_rules() -> list[PatternRule]:
    """Return the built-in rules as they are written in `rules.toml`."""
    written = tomllib.loads(RULES_FILE.read_text(encoding="utf-8"))
    rules = []
    for rule in written["rule"]:
        for name, part in written["parts"].items():
            rule["pattern"] = rule["pattern"].replace(f"%{name}%", part)
        rules.append(PatternRule(**rule))
    return rules


def compiled_builtin_rules() -> tuple[CompiledRule, ...]:
    """Return the compiled built-in rules, ready for a `PatternDefense`."""
    return compile_rules(builtin_rules(), flags=("I", "M"), reads_roles=False)


def read_lines(path: Path, *, shown_as: str) -> tuple[tuple[int, str], ...]:
    """Read a list file: one entry a line, blank lines and lines starting with # left out."""
    text = read_text(path, f"The list {shown_as}")
    entries = []
    # Only newlines end a line: str.splitlines would also cut at U+2028 inside an entry.
    for number, line in enumerate(text.split("\n"), start=1):
        entry = line.strip()
        if entry and not entry.startswith("#"):
            entries.append((number, entry))
    if not entries:
        raise ConfigError(f"The list {shown_as} holds no entry: one a line, # for comments.")
    return tuple(entries)


class PatternSettings(TimedSettings):
    """Blocks what a regular expression or a keyword finds."""

    patterns: str | list[str] | dict[str, str] | None = None
    keywords: str | list[str] | None = None
    flags: list[Literal["I", "S", "M", "X"]] = Field(default_factory=list)
    builtin: bool = False
    view: View = View.TEXT
    timeout_s: float = Field(PATTERN_TIMEOUT_S, gt=0, le=86_400)

    @field_validator("patterns", "keywords")
    @classmethod
    def _no_blank_entries(
        cls, value: str | list[str] | dict[str, str] | None
    ) -> str | list[str] | dict[str, str] | None:
        entries: list[str] = []
        if isinstance(value, str):
            entries.append(value)
        elif isinstance(value, dict):
            entries.extend(value.values())
        elif value is not None:
            entries.extend(value)
        for entry in entries:
            if not entry.strip():
                raise ValueError("holds an empty entry, which would match every text")
        return value

    @model_validator(mode="after")
    def _something_to_look_for(self) -> PatternSettings:
        if not (self.patterns or self.keywords or self.builtin):
            raise ValueError(
                "looks for nothing: add patterns (a list or a file), keywords or builtin: true"
            )
        return self

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        rules = [*self._rules(context.folder)]
        files = []
        for setting in (self.patterns, self.keywords):
            if isinstance(setting, str):  # the name of a file
                files.append(context.folder / setting)
        if self.builtin:
            rules += compiled_builtin_rules()
            files.append(RULES_FILE)
        return PatternDefense(
            name,
            rules,
            keywords=self._words(context.folder),
            view=self.view,
            files=tuple(files),
            timeout_s=self.timeout_s,
        )

    def _rules(self, folder: Path) -> tuple[CompiledRule, ...]:
        """Compile the patterns; each that does not compile is named with its own place."""
        if isinstance(self.patterns, str):
            return _rules_of_file(folder / self.patterns, self.patterns, self.flags)
        keys: list[str] = []
        rules: list[PatternRule] = []
        if isinstance(self.patterns, dict):
            for key, pattern in self.patterns.items():
                keys.append(key)
                rules.append(PatternRule(name=key, pattern=pattern))
        else:
            for index, pattern in enumerate(self.patterns or ()):
                keys.append(str(index))
                rules.append(
                    PatternRule(name=f"pattern {index + 1}: {pattern:.60}", pattern=pattern)
                )
        try:
            return compile_rules(rules, flags=self.flags)
        except BadPatterns as error:
            mistakes = []
            for index, message, _ in error.faults:
                place = ("patterns", keys[index])
                mistakes.append((place, f"{_quoted(rules[index].pattern)} {message}"))
            raise BadSettings(mistakes) from error

    def _words(self, folder: Path) -> Sequence[str]:
        if not isinstance(self.keywords, str):
            return self.keywords or ()
        return [word for _, word in _lines(folder / self.keywords, self.keywords, "keywords")]


def _rules_of_file(path: Path, shown_as: str, flags: Sequence[str]) -> tuple[CompiledRule, ...]:
    """Compile a file of patterns; a mistake names the line and column of the file."""
    lines = _lines(path, shown_as, "patterns")
    rules = []
    for number, pattern in lines:
        rules.append(PatternRule(name=f"line {number}: {pattern:.60}", pattern=pattern))
    try:
        return compile_rules(rules, flags=flags)
    except BadPatterns as error:
        raw = path.read_text(encoding="utf-8-sig").split("\n")
        mistakes = []
        for index, message, (_, column) in error.faults:
            number, pattern = lines[index]
            indent = len(raw[number - 1]) - len(raw[number - 1].lstrip())
            position = f"{shown_as}:{number}:{indent + column}"
            mistakes.append((("patterns",), f"{position}: {_quoted(pattern)} {message}"))
        raise BadSettings(mistakes) from error


def _quoted(pattern: str) -> str:
    if len(pattern) > 60:
        pattern = f"{pattern[:59]}…"
    return repr(pattern)


def _lines(path: Path, shown_as: str, setting: str) -> tuple[tuple[int, str], ...]:
    try:
        return read_lines(path, shown_as=shown_as)
    except ConfigError as error:
        raise BadSettings([((setting,), str(error))]) from error
