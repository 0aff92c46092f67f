"""Settings of the built-in defenses, each with how it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field, field_validator, model_validator

from guardmark.app.settings import Rate, Settings
from guardmark.core.outcome import Outcome
from guardmark.core.sample import View

if TYPE_CHECKING:
    from guardmark.app.registry import BuildContext
    from guardmark.core.protocols import BatchDefense, Defense, InlineDefense

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
        from guardmark.defenses.pattern import (
            PatternDefense,
            builtin_rules,
            compile_rules,
            read_lines,
        )
        from guardmark.defenses.rules import RULES_FILE, Rule

        where = f"defenses.{name}.patterns"
        if isinstance(self.patterns, str):
            lines = read_lines(context.folder / self.patterns, shown_as=self.patterns)
            where = self.patterns
            rules = [Rule(name=f"line {n}: {p:.60}", pattern=p) for n, p in lines]
        elif isinstance(self.patterns, dict):
            rules = [Rule(name=rule, pattern=p) for rule, p in self.patterns.items()]
        else:
            listed = enumerate(self.patterns or (), start=1)
            rules = [Rule(name=f"pattern {n}: {p:.60}", pattern=p) for n, p in listed]
        compiled = compile_rules(rules, flags=self.flags, where=where)
        keywords = self.keywords or ()
        if isinstance(keywords, str):
            read = read_lines(context.folder / keywords, shown_as=keywords)
            keywords = [word for _, word in read]
        return PatternDefense(
            name,
            (*compiled, *(builtin_rules() if self.builtin else ())),
            keywords=keywords,
            view=self.view,
            files=(
                *(
                    context.folder / named
                    for named in (self.patterns, self.keywords)
                    if isinstance(named, str)
                ),
                *((RULES_FILE,) if self.builtin else ()),
            ),
        )


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
        from guardmark.core.errors import ConfigError
        from guardmark.defenses.function import defense_from
        from guardmark.defenses.target import load_target, source_of

        function = load_target(self.target, folder=context.folder)
        files = source_of(self.target, folder=context.folder)
        try:
            return defense_from(
                function, name=name, threshold=self.threshold, view=self.view, files=files
            )
        except TypeError as error:
            raise ConfigError(f"defenses.{name}: {self.target}: {error}.") from error


class ChainSettings(Settings):
    """Combines other defenses of the configuration."""

    of: list[str] = Field(min_length=1)
    rule: Literal["any", "all", "majority", "first"] = "any"
    short_circuit: bool = True

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.core.errors import UnknownName
        from guardmark.core.protocols import InlineDefense
        from guardmark.defenses.chain import Chain, InlineChain
        from guardmark.defenses.chain_rule import Rule

        members: list[AnyDefense] = []
        for member in self.of:
            if member not in context.defenses or member == name:
                raise UnknownName("defense", member, set(context.defenses) - {name})
            members.append(cast("AnyDefense", context.defenses[member]))
        rule = Rule(self.rule)
        inline = [member for member in members if isinstance(member, InlineDefense)]
        if len(inline) == len(members):
            return InlineChain(name, inline, rule=rule, short_circuit=self.short_circuit)
        return Chain(name, members, rule=rule, short_circuit=self.short_circuit)


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
