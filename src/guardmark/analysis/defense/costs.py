"""What a run used: by part, and by sample where two defenses are held against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from guardmark.core.place import part_of
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.usage import price_of
from guardmark.core.values import dataclass
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.rates.means import drawn_mean
from guardmark.store.columns import read_usage, usage_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.estimate import Difference
    from guardmark.core.manifest import PartManifest, RunManifest
    from guardmark.stats.arguments import Floats
    from guardmark.store.columns import PartUsage, UsageColumns
    from guardmark.store.reader import RecordReader

Number = TypeVar("Number", "int | None", "float | None")


class CostUnit(StrEnum):
    """What is counted: a column of `UsageBySample`."""

    TOKENS = "tokens"
    MONEY = "money"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPrice:
    """What calls of a defense cost, as the configuration of its run said."""

    input_per_1k: float = 0.0
    output_per_1k: float = 0.0
    per_call: float = 0.0
    per_unit: float = 0.0
    unit_characters: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CostDifference:
    """How much more the first consumes than the second, on the same samples.

    Attributes:
        is_attack: Whether these are attacks or benign samples.
        unit: Tokens, or money in the currency of the price table.
        mean: Mean difference a sample, first minus second.
        first: Mean of the first, a sample.
        second: Mean of the second, a sample.
    """

    is_attack: bool
    unit: CostUnit
    mean: Difference = field(metadata={"json": "mean_difference"})
    first: float = field(metadata={"json": "first_mean"})
    second: float = field(metadata={"json": "second_mean"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageBySample:
    """Tokens of one defense, read and written, and their price, by position; nan where unknown."""

    tokens: Floats
    money: Floats


def read_usage_by_sample(
    reader: RecordReader, part: PartManifest, *, manifest: RunManifest, samples: int
) -> UsageBySample:
    """Read what a defense consumed."""
    used = usage_columns(reader, part.name)
    tokens = np.full(manifest.repeats * samples, np.nan)
    money = tokens.copy()
    at = used.repeat * samples + used.sample
    tokens[at] = used.read + used.written
    money[at] = np.where(np.isnan(used.cost), _priced(used, part, manifest), used.cost)
    return UsageBySample(tokens=tokens, money=money)


def compare_costs(
    frame: Frame, first: UsageBySample, second: UsageBySample
) -> Iterator[CostDifference]:
    """Compare what two defenses consume, attacks and benign samples apart."""
    settings = frame.settings
    for is_attack in (True, False):
        for unit in CostUnit:
            one, two = getattr(first, unit.value), getattr(second, unit.value)
            both = (frame.is_attack == is_attack) & ~np.isnan(one) & ~np.isnan(two)
            if not both.any():
                continue
            mean = drawn_mean(
                one[both] - two[both],
                frame.groups[both],
                drawing=DrawPlan(seed=settings.seed, replicates=settings.replicates),
                confidence=settings.confidence,
            )
            yield CostDifference(
                is_attack=is_attack,
                unit=unit,
                mean=mean,
                first=float(one[both].mean()),
                second=float(two[both].mean()),
            )


def _priced(used: UsageColumns, part: PartManifest, manifest: RunManifest) -> Floats:
    """Price calls by what stands under the name of the defense, or under that of its model."""
    stated = None
    prices = manifest.settings.get("prices")
    if isinstance(prices, Mapping):
        stated = prices.get(part.name) or prices.get(str(part.settings.get("model")))
    if not isinstance(stated, Mapping):
        return np.full(len(used.sample), np.nan)
    price, counts = PartPrice(**stated), np.stack([used.read, used.written], axis=1)
    known = counts.astype(object)
    known[np.isnan(counts)] = None
    costs = [price_of(price, read=read, written=written) for read, written in known.tolist()]
    return np.array(costs, dtype=np.float64)  # nan where there is no price


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRetries:
    """What it took one part, at one stage and layer, to send requests again.

    Attributes:
        part: As in `PartUsage`.
        stage: At which stage.
        layer: In which layer of records.
        answers: All its answers.
        resent: Answers that took more than one request.
        failures: Failed requests by status, or by kind of failure.
        seconds: Time of failed requests, and of the waits before the next.
    """

    part: str
    stage: str
    layer: str
    answers: int
    resent: int
    failures: tuple[tuple[str, int], ...]
    seconds: float


def read_part_usage(reader: RecordReader, manifest: RunManifest) -> tuple[PartUsage, ...]:
    """Add up what a run used; model and judges go by their own names."""
    by_part: dict[tuple[str, str, str], PartUsage] = {}
    for usage in read_usage(reader):
        named = replace(usage, part=part_name(reader, manifest, usage))
        key = named.part, named.stage, named.layer
        if key in by_part:  # calls about texts that guards wrote are calls of the same part
            named = _added(by_part[key], named)
        by_part[key] = named
    return tuple(by_part.values())


def _added(one: PartUsage, other: PartUsage) -> PartUsage:
    """Add up the usage of one part."""
    return replace(
        one,
        answers=one.answers + other.answers,
        calls=one.calls + other.calls,
        recalled=one.recalled + other.recalled,
        tokens_read=_sum_known(one.tokens_read, other.tokens_read),
        tokens_written=_sum_known(one.tokens_written, other.tokens_written),
        cost=_sum_known(one.cost, other.cost),
        priced=one.priced + other.priced,
    )


def _sum_known(one: Number, other: Number) -> Number:
    """Add two numbers of which either may be unknown."""
    if one is None or other is None:
        if one is None:
            return other
        return one
    return one + other


def part_name(reader: RecordReader, manifest: RunManifest, usage: PartUsage | PartRetries) -> str:
    """Name a part: model and judges are stored under the arm without a guard."""
    stage, layer = Stage(usage.stage), usage.layer
    if stage not in {Stage.MODEL, Stage.JUDGE}:
        if any(part.name == usage.part for part in manifest.parts):
            return usage.part
        return part_of(usage.part)
    alone = usage.part
    known = [part.name for part in manifest.parts if part.kind == stage.value]
    if len(known) == 1:
        alone = known[0]
    if stage is Stage.MODEL:
        return alone
    judge = layer.partition("/")[2] or str(reader.layer_settings(layer).get("judge") or "")
    if judge:
        return judge
    if layer == FIRST_LAYER:
        return alone
    return layer
