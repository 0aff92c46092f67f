"""Settings of the built-in defenses, each with how it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field, field_validator, model_validator

from guardmark.config.settings import Rate, Settings
from guardmark.core.errors import BadSettings, ConfigError
from guardmark.core.outcome import Outcome
from guardmark.core.sample import View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.app.registry import BuildContext
    from guardmark.core.protocols import BatchDefense, Defense, InlineDefense
    from guardmark.defenses.pattern import CompiledRule

    AnyDefense = Defense | InlineDefense | BatchDefense


class AllowAllSettings(Settings):
    """Lets everything through."""

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - all have one signature
        """Build the defense."""
        from guardmark.defenses.baseline import allow_all

        return allow_all(name)


class BlockAllSettings(Settings):
    """Lets nothing through."""

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - all have one signature
        """Build the defense."""
        from guardmark.defenses.baseline import block_all

        return block_all(name)


class CoinSettings(Settings):
    """Blocks by chance; the seed of the run decides, not the order of the samples."""

    probability: Rate = 0.5

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.defenses.baseline import Coin

        return Coin(name, seed=context.seed, probability=self.probability)


class PatternSettings(Settings):
    """Blocks what a regular expression or a keyword finds."""

    patterns: str | list[str] | dict[str, str] | None = None
    keywords: str | list[str] | None = None
    flags: list[Literal["I", "S", "M", "X"]] = Field(default_factory=list)
    builtin: bool = False
    view: View = View.TEXT

    @field_validator("patterns", "keywords")
    @classmethod
    def _no_blank_entries(
        cls, value: str | list[str] | dict[str, str] | None
    ) -> str | list[str] | dict[str, str] | None:
        entries = value.values() if isinstance(value, dict) else value
        for entry in [entries] if isinstance(entries, str) else entries or ():
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
        from guardmark.defenses.pattern import PatternDefense, builtin_rules
        from guardmark.defenses.rules import RULES_FILE

        named = [entry for entry in (self.patterns, self.keywords) if isinstance(entry, str)]
        return PatternDefense(
            name,
            (*self._rules(context.folder), *(builtin_rules() if self.builtin else ())),
            keywords=self._words(context.folder),
            view=self.view,
            files=(
                *(context.folder / each for each in named),
                *((RULES_FILE,) if self.builtin else ()),
            ),
        )

    def _rules(self, folder: Path) -> tuple[CompiledRule, ...]:
        """Compile the patterns; each that does not compile is named with its own place."""
        from guardmark.defenses.pattern import BadPatterns, compile_rules
        from guardmark.defenses.rules import PatternRule

        if isinstance(self.patterns, str):
            return _rules_of_file(folder / self.patterns, self.patterns, self.flags)
        if isinstance(self.patterns, dict):
            keys = list(self.patterns)
            rules = [PatternRule(name=rule, pattern=p) for rule, p in self.patterns.items()]
        else:
            keys = [str(index) for index in range(len(self.patterns or ()))]
            listed = enumerate(self.patterns or (), start=1)
            rules = [PatternRule(name=f"pattern {n}: {p:.60}", pattern=p) for n, p in listed]
        try:
            return compile_rules(rules, flags=self.flags)
        except BadPatterns as error:
            raise BadSettings(
                (("patterns", keys[index]), f"{_quoted(rules[index].pattern)} {message}")
                for index, message, _ in error.faults
            ) from error

    def _words(self, folder: Path) -> Sequence[str]:
        if not isinstance(self.keywords, str):
            return self.keywords or ()
        return [word for _, word in _lines(folder / self.keywords, self.keywords, "keywords")]


def _rules_of_file(path: Path, shown_as: str, flags: Sequence[str]) -> tuple[CompiledRule, ...]:
    from guardmark.defenses.pattern import BadPatterns, compile_rules
    from guardmark.defenses.rules import PatternRule

    lines = _lines(path, shown_as, "patterns")
    try:
        return compile_rules(
            [PatternRule(name=f"line {n}: {p:.60}", pattern=p) for n, p in lines], flags=flags
        )
    except BadPatterns as error:
        raw = path.read_text(encoding="utf-8-sig").split("\n")
        mistakes = []
        for index, message, (_, column) in error.faults:
            number, pattern = lines[index]
            indent = len(raw[number - 1]) - len(raw[number - 1].lstrip())
            place = f"{shown_as}:{number}:{indent + column}"
            mistakes.append((("patterns",), f"{place}: {_quoted(pattern)} {message}"))
        raise BadSettings(mistakes) from error


def _quoted(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else f"{pattern[:59]}…")


def _lines(path: Path, shown_as: str, setting: str) -> tuple[tuple[int, str], ...]:
    from guardmark.defenses.pattern import read_lines

    try:
        return read_lines(path, shown_as=shown_as)
    except ConfigError as error:
        raise BadSettings([((setting,), str(error))]) from error


class NgramSettings(Settings):
    """Scores texts with a small classifier over character n-grams."""

    weights: str | None = None
    threshold: Rate | None = None
    view: View = View.TEXT

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.defenses.ngram import BUILTIN_WEIGHTS, NgramDefense, read_model

        path = context.folder / self.weights if self.weights else BUILTIN_WEIGHTS
        return NgramDefense(
            name, read_model(path), threshold=self.threshold, view=self.view, files=(path,)
        )


class PythonSettings(Settings):
    """Calls a Python function: `module:name` or `file.py:name`."""

    target: str = Field(min_length=3)
    threshold: Rate | None = None
    view: View = View.TEXT

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.defenses.function import defense_from
        from guardmark.defenses.target import load_target, source_of

        try:
            function = load_target(self.target, folder=context.folder)
        except ConfigError as error:
            raise BadSettings([(("target",), str(error))]) from error
        files = source_of(self.target, folder=context.folder)
        try:
            return defense_from(
                function, name=name, threshold=self.threshold, view=self.view, files=files
            )
        except TypeError as error:
            raise BadSettings([(("target",), f"{self.target}: {error}.")]) from error


class ChainSettings(Settings):
    """Combines other defenses of the configuration."""

    of: list[str] = Field(min_length=1)
    rule: Literal["any", "all", "majority", "first"] = "any"
    short_circuit: bool = True

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.core.errors import UnknownName
        from guardmark.core.protocols import InlineDefense
        from guardmark.defenses.chain import ChainDefense, InlineChain
        from guardmark.defenses.chain_rule import ChainRule

        members: list[AnyDefense] = []
        for member in self.of:
            if member not in context.defenses or member == name:
                raise UnknownName("defense", member, set(context.defenses) - {name})
            members.append(cast("AnyDefense", context.defenses[member]))
        rule = ChainRule(self.rule)
        inline = [member for member in members if isinstance(member, InlineDefense)]
        if len(inline) == len(members):
            return InlineChain(name, inline, rule=rule, short_circuit=self.short_circuit)
        return ChainDefense(name, members, rule=rule, short_circuit=self.short_circuit)


class ClassifierSettings(Settings):
    """Scores texts with a sequence classifier in this process; needs the [hf] extra."""

    path: str
    positive: list[str] = Field(min_length=1)
    threshold: Rate
    view: View = View.TEXT
    max_length: int = Field(512, ge=8)
    long_text: Literal["truncate", "chunk", "error"] = "truncate"
    batch_tokens: int = Field(1024, ge=16)
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.defenses.classifier import ClassifierDefense
        from guardmark.inference.classifier import LongText, SequenceClassifier

        path = context.folder / self.path
        classifier = SequenceClassifier(
            path,
            positive=self.positive,
            max_length=self.max_length,
            long_text=LongText(self.long_text),
            budget=self.batch_tokens,
            device=self.device,
        )
        return ClassifierDefense(
            name, classifier, threshold=self.threshold, view=self.view, files=(path,)
        )


class DecisionsSettings(Settings):
    """Reads decisions that another tool already made."""

    path: str
    map: dict[Literal["id", "decision", "score", "latency_ms"], str] = Field(default_factory=dict)
    values: dict[str, Outcome] = Field(default_factory=dict)
    threshold: Rate | None = None

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.defenses.decisions import DecisionsDefense, RowFormat, read_decisions

        row_format = RowFormat(
            names={str(field): column for field, column in self.map.items()},
            values=self.values,
            threshold=self.threshold,
        )
        path = context.folder / self.path
        found = read_decisions(path, row_format, shown_as=self.path)
        return DecisionsDefense(name, found, threshold=self.threshold, files=(path,))
