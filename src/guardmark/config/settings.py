"""The base of all settings: values are frozen, secrets have names, a part builds itself."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from guardmark.core.errors import ConfigError
from guardmark.core.limits import LONGEST_WAIT_S, MOST_ANSWER_MIB, USUAL_ANSWER_MIB
from guardmark.core.manifest import LatencyMode
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    Alarm = Callable[[], AbstractContextManager[object]]


Rate = Annotated[float, Field(ge=0, le=1)]
NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$"
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=NAME_PATTERN)]


class Settings(BaseModel):
    """Base of every section: unknown keys are errors, values are frozen."""

    # defer_build: the validators of parts that a configuration does not name are never made.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class Secret(Settings):
    """A secret, named by the environment variable that holds it; never written down."""

    env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")


_LEAST_PART: Final = 8  # characters of a part of an address that is taken for a secret
_PUBLIC_PARTS: Final = frozenset(
    {
        "classify",
        "completion",
        "completions",
        "deployments",
        "detections",
        "embeddings",
        "endpoints",
        "evaluate",
        "generate",
        "generatecontent",
        "guardrails",
        "inference",
        "invocations",
        "messages",
        "moderate",
        "moderation",
        "moderations",
        "predictions",
        "projects",
        "locations",
        "publishers",
        "responses",
        "serving-endpoints",
    }
)
"""Words of the addresses of well-known services: hiding them would tear up what answers say."""

Address = str | Secret  # a URL, or the variable that holds all of it


class PriceSettings(Settings):
    """What a part costs, in the user's currency: by a thousand tokens, by call, by unit of text."""

    input_per_1k: float = Field(0.0, ge=0)
    output_per_1k: float = Field(0.0, ge=0)
    per_call: float = Field(0.0, ge=0)
    per_unit: float = Field(0.0, ge=0)
    unit_characters: int = Field(1000, ge=1)


def stated_price(
    prices: Mapping[str, PriceSettings], name: str, settings: object
) -> PriceSettings | None:
    """Return the price of a part: its own, else that under its name, else that of its model."""
    own: PriceSettings | None = getattr(settings, "price", None)
    model: str = getattr(settings, "model", "")
    return own or prices.get(name) or prices.get(model)


def read_secret(secret: Secret, where: str, services: ServiceAccess) -> str:
    """Return the value of the variable that a secret names, hidden from now on in all output."""
    value = os.environ.get(secret.env, "").strip()
    if not value:
        raise ConfigError(
            f"{where} needs the environment variable {secret.env}, which is not set.\n"
            f"Set it for this shell: export {secret.env}=..."
        )
    services.hide(value, secret.env)
    return value


def shown_address(address: Address) -> str:
    """Return what messages call an address: of one in a variable, the variable."""
    return address if isinstance(address, str) else f"{{env: {address.env}}}"


def read_text(given: str | Secret, where: str, services: ServiceAccess) -> str:
    """Return a text that goes into an address; what a variable holds of it is hidden from now on.

    Of an address in a variable the host and each longer part behind it are hidden by themselves,
    too: a service may repeat a part of an address, and messages name the host alone.
    """
    if isinstance(given, str):
        return given
    text = read_secret(given, where, services)
    if "://" in text:
        for part in _parts_of_address(text):
            services.hide(part, "")
    return text


def _parts_of_address(address: str) -> Iterator[str]:
    """Yield the host with its scheme, and what else may be a key: user, segments, values."""
    yield "/".join(address.split("/", 3)[:3])
    split = urlsplit(address)
    user, has_user, _ = split.netloc.rpartition("@")
    candidates = split.path.split("/")
    candidates += [value for _, value in parse_qsl(split.query)]
    # As it is written, too: `parse_qsl` decodes a value.
    candidates += [pair.partition("=")[2] for pair in split.query.split("&")]
    candidates.append(split.fragment)
    if has_user:
        candidates += [user, *user.split(":")]
    for candidate in candidates:
        for form in {candidate, unquote(candidate)}:
            if len(form) >= _LEAST_PART and form.lower() not in _PUBLIC_PARTS:
                yield form


class ServiceAccess(Protocol):
    """The client of a run, as `net.client.Services` is one; this room may not name its neighbour.

    What its methods return is what the rooms of the parts know from `net`.
    """

    def hide(self, secret: str, name: str) -> None:
        """Keep a secret out of everything that is written; the name is its variable."""
        ...

    def endpoint(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        secret_headers: Mapping[str, str] | None = None,
        final_statuses: frozenset[int] = frozenset(),
        is_last: Callable[[bytes], bool] | None = None,
    ) -> Any:
        """Prepare an address for many requests."""
        ...

    def model(
        self,
        protocol: Literal["chat", "embeddings"],
        address: str,
        *,
        model: str,
        options: Mapping[str, Any],
        price: PriceSettings | None,
        secret_headers: Mapping[str, str],
        is_streamed: bool = False,
    ) -> Any:
        """Prepare a model behind a server of one of the common protocols."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a part may ask for while it is built.

    Attributes:
        folder: The folder from which paths are taken.
        seed: The seed of the run.
        services: What prepares calls of services; None where no service may be called.
        defenses: Defenses that are built already, by name.
        members: Members of a chain or a panel, which are built already.
        prices: The price table, by name of the part.
        charges: Prices of members in this process.
        system_prompt: What the target model is told before every conversation.
        where: The place of the part in the configuration, for messages.
        alarm: Ends a search of `re` that takes too long.
    """

    folder: Path
    seed: int
    services: ServiceAccess | None
    defenses: Mapping[str, object]
    members: tuple[object, ...] = ()
    prices: Mapping[str, PriceSettings] = field(default_factory=dict)
    charges: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str = ""
    where: str = ""
    alarm: Alarm = nullcontext


def describe_keys(schema: dict[str, Any], words: Mapping[str, Mapping[str, str]]) -> None:
    """Put the meaning of each key into a JSON Schema, from words by kind of settings and by key."""
    for name, entry in {schema["title"]: schema, **schema["$defs"]}.items():
        for key, said in entry.get("properties", {}).items():
            meaning = words.get(name, {}).get(key) or words["common"].get(key)
            if meaning:
                said["description"] = meaning


_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}


def _require_short_waits(rate: str) -> str:
    """Refuse a rate that leaves more than a day between two calls."""
    calls, _, unit = rate.partition("/")
    if float(calls) * LONGEST_WAIT_S < _SECONDS[unit]:
        raise ValueError("more than a day would pass between two calls")
    return rate


CallRate = Annotated[
    str, Field(pattern=r"^\d{1,12}(\.\d{1,12})?/(s|min|h)$"), AfterValidator(_require_short_waits)
]
"""Calls in a time, such as 20/s."""


class ServiceSettings(Settings):
    """How one service may be called."""

    concurrency: int | None = Field(None, ge=1, le=2_000)
    rate: CallRate | None = None
    tokens: str | None = Field(None, pattern=r"^\d+/(s|min|h)$")
    connect_timeout_s: float = Field(5.0, gt=0)
    read_timeout_s: float = Field(60.0, gt=0)
    retries: int = Field(3, ge=0, le=20)
    adaptive: bool = False
    max_answer_mib: int = Field(USUAL_ANSWER_MIB, ge=1, le=MOST_ANSWER_MIB)
    ca_file: str | None = None
    base_urls: list[str] = Field(default_factory=list)


class LatencySettings(Settings):
    """How calls are spaced while latency is measured."""

    mode: LatencyMode = LatencyMode.LOADED
    warmup: int = Field(3, ge=0)
    rate: CallRate | None = None

    @model_validator(mode="after")
    def _open_needs_a_rate(self) -> LatencySettings:
        if self.mode is LatencyMode.OPEN and self.rate is None:
            raise ValueError("mode: open needs a rate, for example rate: 20/s")
        return self
