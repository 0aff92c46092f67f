"""Which part costs what, who counts its calls, and whether a stated limit can be measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guardmark.app.parts.building import (
    calls_service,
    judge_name,
    name_at,
    price_at,
    price_here,
    service_address,
)
from guardmark.app.parts.loading import locate_error
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.engine.plan import Spending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.config.source import Keys
    from guardmark.core.budget import Budget, SpendingMeter


def counted_at_service(loaded: LoadedConfig) -> frozenset[str]:
    """Return the parts of a run whose requests the client of services counts."""
    helpers = [path for path in loaded.parts if path[0] == "adaptive"]
    named = [path[1] for path in loaded.parts if path[0] == "defenses"]
    names = {name for name in named if calls_service(loaded, name)}
    names |= {name_at(loaded, path) for path in helpers if service_address(loaded.parts[path])}
    if loaded.config.pipeline is None:
        return frozenset(names)
    if service_address(loaded.parts["pipeline", "model"]):
        names.add("model")
    judges = loaded.config.pipeline.judges
    for index in range(len(judges)):
        path = ("pipeline", "judges", str(index))
        below = [settings for at, settings in loaded.parts.items() if at[:3] == path]
        if any(map(service_address, below)):
            names.add(judge_name(judges, index))
    return frozenset(names)


def spending_of(loaded: LoadedConfig, parts: Iterable[Any], meter: SpendingMeter) -> Spending:
    """Say who counts the calls of parts, and what those cost that no client of services counts."""
    parts = list(parts)
    counted_inside = {part.name for part in parts if getattr(part, "counts_own_calls", False)}
    elsewhere, prices = counted_at_service(loaded) | counted_inside, {}
    for part in parts:
        if part.name in elsewhere:
            continue
        price = price_here(loaded, part)
        if price is not None:
            prices[part.name] = price
    return Spending(meter=meter, at_service=elsewhere, prices=prices)


def require_known_prices(loaded: LoadedConfig) -> None:
    """Refuse a price of something that is no part and no model of a part."""
    known = set(_priceable(loaded))
    for name in loaded.config.prices:
        if name not in known:
            raise locate_error(
                UnknownName("part or model of this configuration", name, known),
                loaded,
                ("prices", name),
            )


def _priceable(loaded: LoadedConfig) -> Iterator[str]:
    for path, settings in loaded.parts.items():
        yield name_at(loaded, path)
        model = getattr(settings, "model", "")
        if model:
            yield str(model)


def known_prices(loaded: LoadedConfig) -> frozenset[str]:
    """Return the names under which a configuration can state prices."""
    return frozenset(_priceable(loaded))


def require_measurable(
    loaded: LoadedConfig, budget: Budget, *, only: Sequence[str] = ("defenses", "pipeline")
) -> None:
    """Refuse a limit of money or tokens that cannot be checked, before anything is called."""
    paths = [
        path for path in loaded.parts if path[0] in only and service_address(loaded.parts[path])
    ]
    if budget.cost is not None:
        for path in paths:
            _require_price(loaded, path)
    reports_tokens = any(getattr(settings, "model", "") for settings in loaded.parts.values())
    if budget.tokens is not None and not reports_tokens:
        raise ConfigError(
            "run.max_tokens cannot be measured: no part of this run reports tokens.\n"
            "Next: state run.max_calls, or run.max_cost with prices."
        )


def _require_price(loaded: LoadedConfig, path: Keys) -> None:
    """Refuse a limit of money where a part that calls a service has no price to count by."""
    name, settings = name_at(loaded, path), loaded.parts[path]
    price = price_at(loaded, path)
    if price is None:
        raise ConfigError(
            f"run.max_cost cannot be measured: {name} calls a service and has no price.\n"
            f"Next: state one, for example  prices: {{{name}: {{per_call: 0.001}}}}  "
            "(per_call: 0 where it is free)."
        )
    if (price.input_per_1k or price.output_per_1k) and not getattr(settings, "model", ""):
        raise ConfigError(
            f"run.max_cost cannot be measured: {name} has a price by tokens, and its service "
            "reports none.\n"
            f"Next: state per_call, or per_unit with unit_characters, under prices.{name}."
        )
