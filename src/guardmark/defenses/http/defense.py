"""A defense behind HTTP: any service that takes JSON and answers in JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal
from urllib.parse import urlencode

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from guardmark.config.deadline import GrownSettings
from guardmark.config.mistakes import names_secret
from guardmark.config.settings import (
    Address,
    Rate,
    Secret,
    Settings,
    read_secret,
    read_text,
    shown_address,
    stated_price,
)
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.protocols import Capabilities
from guardmark.core.sample import Role, View
from guardmark.core.usage import call_price
from guardmark.defenses.answers import ConfidenceMeaning
from guardmark.defenses.baseline import NOTHING_SHOWN
from guardmark.defenses.http.answer import AnswerRules, ConfidenceRule, WordRule, read_answer
from guardmark.defenses.http.body import RequestBody
from guardmark.defenses.http.profile import service_profile
from guardmark.defenses.http.stream import ACCEPTED, StreamRules
from guardmark.defenses.http.values import (
    ScoreScale,
    compile_path,
    is_at_least,
    is_filled,
    is_one_of,
    is_there,
    is_true,
)
from guardmark.defenses.profile import profile_names, with_profile
from guardmark.net.service import CallCost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.config.settings import BuildContext, ServiceAccess
    from guardmark.core.sample import Prompt
    from guardmark.core.usage import Price
    from guardmark.defenses.http.values import BlockedRule, JsonPath
    from guardmark.net.client import Endpoint


Meaning = Literal["allow", "block", "error"]
_MEANS: Final = {
    "allow": Outcome.ALLOW,
    "block": Outcome.BLOCK,
    "rewrite": Outcome.ALLOW,  # another text goes on
    "flag": Outcome.ALLOW,  # it goes on, and the service's word is recorded
}
Scalar = str | bool | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HttpDefense:
    """Asks a service about each prompt.

    Attributes:
        name: Its name.
        endpoint: Where requests go.
        body: What is sent.
        rules: Where the answer says what.
        view: What it is shown of a prompt.
        text_view: What `{$input: text}` is, whatever else is inserted.
        max_chars: The longest text that is sent.
        cut: Whether a longer text is cut; else it is an error.
        takes_images: Whether images are sent.
        price: What a call costs.
    """

    name: str
    endpoint: Endpoint
    body: RequestBody
    rules: AnswerRules
    view: View = View.TEXT
    text_view: View = View.TEXT
    max_chars: int | None = None
    cut: bool = False
    takes_images: bool = False
    price: Price | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What is stated of the service."""
        return Capabilities(
            view=self.view,
            takes_images=self.takes_images,
            keeps_session="session" in self.body.inserts,
            threshold=self.rules.threshold,
        )

    def with_raw_answers(self) -> HttpDefense:
        """Return the defense with what the service answered among its evidence."""
        return replace(self, rules=replace(self.rules, keep_raw=True))

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask about one prompt."""
        shown = prompt.shown(self.view, beside_images=self.takes_images)
        if shown is None:
            return NOTHING_SHOWN[self.view]
        missing = self.body.missing(prompt) if self.body.needed else ""
        if missing:
            return _skipped(f"the sample has nothing for {{$input: {missing}}}")
        if self.text_view is not self.view:
            shown = prompt.shown(self.text_view)
            if shown is None:
                return NOTHING_SHOWN[self.text_view]
        if self.max_chars is None:
            request, is_cut = self.body.encode(prompt, shown), False
        else:
            sent: tuple[Prompt, str] | None = prompt, shown
            length = self.body.length(prompt, shown)
            is_cut = length > self.max_chars
            if is_cut:
                sent = self.body.cut(prompt, shown, self.max_chars) if self.cut else None
            if sent is None:
                return self._too_long(length)
            request = self.body.encode(*sent, original=prompt)
        if self.price is None:
            exchange = await self.endpoint.send(request)
        else:
            paid = call_price(self.price, len(shown))
            cost = CallCost(at_most=paid, unanswered=paid)
            exchange = await self.endpoint.send(request, cost=cost)
        decision = read_answer(self.rules, exchange, truncated=is_cut)
        if decision.text == shown:  # the same text goes on
            return replace(decision, text=None)
        return decision

    def _too_long(self, length: int) -> Decision:
        message = f"{length} characters are more than the {self.max_chars} the service takes"
        if self.cut:
            message += ", even without the text under test"
        return _skipped(message)


def _skipped(message: str) -> Decision:
    return Decision(
        outcome=Outcome.ERROR, error_kind=ErrorKind.SKIPPED, evidence=Evidence(message=message)
    )


class HeaderSecret(Secret):
    """A header's value from the environment, with what comes before it."""

    prefix: str = ""


class BlockedWhen(Settings):
    """Values that mean blocked, where true and false do not say it."""

    one_of: list[Scalar] = Field(default_factory=list)
    allowed: list[Scalar] = Field(default_factory=list)
    at_least: float | None = None
    exists: Literal[True] | None = None
    filled: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> BlockedWhen:
        rules = (self.one_of or None, self.at_least, self.exists, self.filled)
        if len(rules) - rules.count(None) != 1:
            raise ValueError("needs exactly one of one_of, at_least, exists and filled")
        if self.allowed and not self.one_of:
            raise ValueError("allowed goes with one_of")
        return self


class Rejection(Settings):
    """How a gateway says that it refused a request for its content: that is a block."""

    path: str
    codes: list[str] = Field(min_length=1)


class Incomplete(Settings):
    """How a service says that it left something out: what it then lets pass was not examined.

    By a code at the path, by fewer values there than belong, or by anything there.
    """

    path: str
    codes: list[str] = Field(default_factory=list)
    fewer_than: int = Field(0, ge=0)


class Failed(Settings):
    """How a service says that it blocked because something of it failed: that is no decision."""

    path: str
    codes: list[str] = Field(min_length=1)


class Stream(GrownSettings):
    """How a service streams its answer: where its chunks stand, and what ends it."""

    later: ClassVar[tuple[str, ...]] = ("tokens",)
    each: str
    blocked: str | None = None
    end: str | None = Field(None, min_length=1)
    tokens: str | None = None


_PARENT: Final = re.compile(r"(\$(?:\.\w+)*)\.\w+")
"""A plain path, and the object that holds what it names."""


class HttpSettings(GrownSettings):
    """Asks a service over HTTP."""

    later: ClassVar[tuple[str, ...]] = ("thresholds", "confidence", "stream", "failed")
    model_config = ConfigDict(
        json_schema_extra={
            "required": [],
            "anyOf": [{"required": ["profile"]}, {"required": ["url", "body"]}],
        }
    )

    profile: str | None = None
    url: Address
    query: dict[str, str | Secret] = Field(default_factory=dict)
    variables: dict[str, str | Secret] = Field(default_factory=dict)
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[str, str | HeaderSecret] = Field(default_factory=dict)
    api_key: Secret | None = None
    body: JsonValue
    roles: dict[Role, str] = Field(default_factory=dict)
    view: View | None = None
    blocked: str | None = None
    blocked_when: BlockedWhen | list[Scalar] | Scalar = None
    action: str | None = None
    actions: dict[str, Literal["allow", "block", "rewrite", "flag"]] = Field(default_factory=dict)
    rewritten: str | None = None
    score: str | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    score_labels: dict[str, Rate] = Field(default_factory=dict)
    score_kind: ScoreKind | None = None
    confidence: ConfidenceMeaning | None = None
    threshold: Rate | None = None
    categories: str | None = None
    thresholds: dict[str, Rate] = Field(default_factory=dict)
    reason: str | None = None
    status: dict[int, Meaning] = Field(default_factory=dict)
    rejection: Rejection | None = None
    incomplete: Incomplete | None = None
    failed: Failed | None = None
    max_chars: int | None = Field(None, ge=1)
    too_long: Literal["skip", "cut"] = "skip"
    keep_raw: bool = False
    stream: Stream | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_the_profile_says(cls, given: Any) -> Any:
        """Take from the profile what the configuration leaves out."""
        if not isinstance(given, dict) or not isinstance(given.get("profile"), str):
            return given
        name = given["profile"]
        if name not in profile_names("service"):
            raise ValueError(str(UnknownName("service profile", name, profile_names("service"))))
        defaults = service_profile(name).defaults(given)
        return with_profile(given, defaults, merged=("headers", "variables", "roles"))

    @field_validator("headers")
    @classmethod
    def _no_secret_in_the_file(
        cls, headers: dict[str, str | HeaderSecret]
    ) -> dict[str, str | HeaderSecret]:
        # The settings are stored with the run, so what stands in them is passed on with it.
        for header, value in headers.items():
            if isinstance(value, str) and names_secret(header):
                raise ValueError(
                    f"{header} holds a secret, which never stands in the file; name the variable "
                    f'that holds it: {header}: {{env: NAME, prefix: "Bearer "}}'
                )
        return headers

    @field_validator("score_range")
    @classmethod
    def _a_range(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] == value[1]:
            raise ValueError("needs two different numbers: no risk, greatest risk")
        return value

    @model_validator(mode="after")
    def _decides(self) -> HttpSettings:
        if self.stream is not None:
            return self._decides_by_stream(self.stream)
        if not (self.blocked or self.action or self.score or self.thresholds or self.status):
            raise ValueError(
                "says nowhere what the answer means: add blocked, action, score, thresholds or "
                "status"
            )
        if bool(self.action) != bool(self.actions):
            raise ValueError("action (a path) and actions (its words) go together")
        if self.action and self.blocked:
            raise ValueError("has both action and blocked: only one can decide")
        if "rewrite" in self.actions.values() and not self.rewritten:
            raise ValueError("an action that means rewrite needs rewritten, the path to the text")
        self._decides_by_category()
        by_score = self.score and not (self.blocked or self.action or self.thresholds)
        if by_score and self.threshold is None:
            raise ValueError("decides by the score, so it needs a threshold")
        if self.blocked_when is not None and not self.blocked:
            raise ValueError("blocked_when needs blocked, the path to the value")
        return self

    def _decides_by_stream(self, stream: Stream) -> HttpSettings:
        """Refuse a stream that names no place of its decision, or two, or what it cannot hold."""
        if bool(stream.blocked) == bool(self.blocked):
            raise ValueError(
                "stream needs blocked once, the path to the value that says so in each part"
            )
        for other in (
            *("action", "actions", "rewritten", "score", "threshold", "thresholds"),
            *("confidence", "categories", "reason", "incomplete", "failed"),
        ):
            if getattr(self, other):
                raise ValueError(f"has both stream and {other}: a stream is read for blocked alone")
        return self

    def _decides_by_category(self) -> None:
        """Refuse thresholds of categories where nothing names these, or something else decides."""
        if not self.thresholds:
            return
        if not self.categories:
            raise ValueError("thresholds needs categories, the path to the categories' scores")
        for other in ("threshold", "blocked", "action"):
            if getattr(self, other) is not None:
                raise ValueError(f"has both thresholds and {other}: only one can decide")

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        where = f"defenses.{name}"
        if context.services is None:
            raise ConfigError(
                f"{where} calls {shown_address(self.url)}, and this run may call nothing."
            )
        body = RequestBody(self.body, roles=self.roles, where=f"{where}.body")
        view = self._view(where, body.inserts)
        plain, secret = self._headers(where, context.services)
        rules = self.answer_rules(where)
        if rules.stream is not None and not any(name.lower() == "accept" for name in plain):
            plain = {"Accept": ACCEPTED, **plain}
        endpoint = context.services.endpoint(
            self._address(where, context.services),
            method=self.method,
            headers=plain,
            secret_headers=secret,
            final_statuses=frozenset(self.status),
            is_last=None if rules.stream is None else rules.stream.is_last,
        )
        return HttpDefense(
            name=name,
            endpoint=endpoint,
            body=body,
            rules=rules,
            view=view,
            text_view=self._text_view(view, body.inserts),
            takes_images=view is View.TEXT and "content" in body.inserts,
            max_chars=self.max_chars,
            cut=self.too_long == "cut",
            price=stated_price(context.prices, name, self),
        )

    def _address(self, where: str, services: ServiceAccess) -> str:
        """Return the URL to call, with the values of its variables and its parameters."""

        def value(slot: re.Match[str]) -> str:
            given = self.variables.get(slot[1])
            if given is None:
                return slot[0]
            read = read_text(given, f"{where}.variables.{slot[1]}", services)
            if isinstance(given, str):
                return read
            return read.rstrip("/")  # of the environment, where an address may end in one

        url = read_text(self.url, f"{where}.url", services)
        if self.variables:
            url = re.sub(r"\{(\w+)\}", value, url)
        if not self.query:
            return url
        query = {}
        for name, given in self.query.items():
            query[name] = read_text(given, f"{where}.query.{name}", services)
        separator = "?"
        if "?" in url:
            separator = "&"
        return f"{url}{separator}{urlencode(query)}"

    def _headers(
        self, where: str, services: ServiceAccess
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the plain headers, and those that hold secrets."""
        plain, secret = dict[str, str](), dict[str, str]()
        for header, value in self.headers.items():
            if isinstance(value, HeaderSecret):
                key = read_secret(value, f"{where}.headers.{header}", services)
                secret[header] = value.prefix + key
            else:
                plain[header] = value
        if self.api_key is not None:
            key = read_secret(self.api_key, f"{where}.api_key", services)
            secret["Authorization"] = f"Bearer {key}"
        return plain, secret

    def _view(self, where: str, inserts: frozenset[str]) -> View:
        """Return what the service is shown; a body says it where the setting does not."""
        implied = View.TEXT
        if "answer" in inserts:
            implied = View.RESPONSE
        elif "messages" in inserts:
            implied = View.CONVERSATION
        elif inserts <= {"documents", "id", "session"}:
            implied = View.DOCUMENT
        allowed = {None, View.CONVERSATION}
        if "answer" in inserts:
            allowed.add(View.RESPONSE)
        if "messages" in inserts and self.view not in allowed:
            raise ConfigError(
                f"{where} sends all messages, which is the view conversation, not {self.view}."
            )
        return self.view or implied

    def _text_view(self, view: View, inserts: frozenset[str]) -> View:
        """Return what `{$input: text}` is: what the setting says, else the text under test."""
        if inserts.isdisjoint({"text", "content"}):
            return view
        return self.view or View.TEXT

    def answer_rules(self, where: str) -> AnswerRules:
        """Return where an answer says what; `where` names these settings in messages."""
        score = self._path(where, "score")
        confidence = self._confidence_rule(where, score)
        if confidence is not None and confidence.is_stated:
            score = None
        return AnswerRules(
            blocked=self._path(where, "blocked"),
            blocked_rule=self._blocked_rule(),
            action=self._path(where, "action"),
            actions={word: _MEANS[meaning] for word, meaning in self.actions.items()},
            rewriting=frozenset(w for w, meaning in self.actions.items() if meaning == "rewrite"),
            flagging=frozenset(w for w, meaning in self.actions.items() if meaning == "flag"),
            score=score,
            scale=ScoreScale(
                lowest=self.score_range[0], highest=self.score_range[1], labels=self.score_labels
            ),
            score_kind=self._score_kind(score),
            threshold=self.threshold,
            confidence=confidence,
            categories=self._path(where, "categories"),
            thresholds=self.thresholds,
            reason=self._path(where, "reason"),
            rewritten=self._path(where, "rewritten"),
            statuses={status: Outcome(meaning) for status, meaning in self.status.items()},
            rejection=self._word_rule(where, "rejection"),
            incomplete=self._word_rule(where, "incomplete"),
            failed=self._word_rule(where, "failed"),
            keep_raw=self.keep_raw,
            stream=self._stream_rules(where),
        )

    def _stream_rules(self, where: str) -> StreamRules | None:
        """Return how an answer that streams is read; None where it is one JSON value."""
        given = self.stream
        if given is None:
            return None
        setting, tokens = "stream.blocked", None
        if given.blocked is None:
            setting = "blocked"
        if given.tokens is not None:
            tokens = compile_path(given.tokens, where=f"{where}.stream.tokens")
        blocked = given.blocked or self.blocked or ""
        return StreamRules(
            each=compile_path(given.each, where=f"{where}.stream.each"),
            blocked=compile_path(blocked, where=f"{where}.{setting}"),
            blocked_rule=self._blocked_rule(),
            end=given.end,
            tokens=tokens,
        )

    def _confidence_rule(self, where: str, score: JsonPath | None) -> ConfidenceRule | None:
        """Find the confidence of an answer: named as the score, or else beside the decision.

        A field `confidence` may be how dangerous the input is, or how sure the decision is: where
        the settings do not say, the kind of the score says that nobody did.
        """
        decides = self.blocked or self.action
        is_known = self.score_kind is not None or self.score_labels or self.profile
        if score is not None:
            is_confidence = self.confidence is not None or score.text.endswith(".confidence")
            if not is_confidence or (self.confidence is None and is_known):
                return None
            if decides and score.is_singular:
                return ConfidenceRule(path=score, means=self.confidence, is_stated=True)
            if self.confidence == "certainty":
                raise ConfigError(
                    f"{where}.confidence: a certainty is that of a decision, which blocked or "
                    "action has to name."
                )
            return None  # it decides by a threshold, so it is a risk
        parent = _PARENT.fullmatch(decides or "")
        if parent is None:
            if self.confidence is not None:
                raise ConfigError(
                    f"{where}.confidence says what a confidence means, and nothing says where it "
                    "stands: name it by score, such as score: $.confidence."
                )
            return None
        if self.confidence is None and (self.profile or self.thresholds):
            return None  # whoever wrote the profile knows what its answers hold
        beside = compile_path(f"{parent[1]}.confidence", where=f"{where}.confidence")
        return ConfidenceRule(path=beside, means=self.confidence, is_stated=False)

    def _path(self, where: str, setting: str) -> JsonPath | None:
        """Return the path that a setting states, or None where it states none."""
        text: Any = getattr(self, setting)
        if text is None:
            return None
        return compile_path(text, where=f"{where}.{setting}")

    def _word_rule(self, where: str, setting: str) -> WordRule | None:
        given: Rejection | Incomplete | Failed | None = getattr(self, setting)
        if given is None:
            return None
        path = compile_path(given.path, where=f"{where}.{setting}.path")
        fewest = getattr(given, "fewer_than", 0)
        return WordRule(path=path, codes=frozenset(given.codes), fewest=fewest)

    def _blocked_rule(self) -> BlockedRule:
        when = self.blocked_when
        if when is None:
            return is_true
        if not isinstance(when, BlockedWhen):
            return is_one_of(when if isinstance(when, list) else [when])
        if when.exists:
            return is_there
        if when.filled:
            return is_filled
        if when.at_least is not None:
            return is_at_least(when.at_least)
        return is_one_of(when.one_of, allowed=when.allowed)

    def _score_kind(self, score: JsonPath | None) -> ScoreKind:
        if self.score_kind is not None:
            return self.score_kind
        if self.score_labels:
            return ScoreKind.ORDINAL
        if score is not None and not score.is_singular:
            return ScoreKind.CATEGORY_MAX
        return ScoreKind.SELF_REPORTED
