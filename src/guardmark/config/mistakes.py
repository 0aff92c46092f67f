"""What is wrong with settings, in words for the person who wrote them."""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote_plus

from pydantic import BaseModel, ValidationError

from guardmark.config.settings import NAME_PATTERN, Secret
from guardmark.core.errors import ConfigError, as_word, did_you_mean, listed
from guardmark.core.limits import LONGEST_MISTAKE, MOST_MISTAKES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from guardmark.config.source import Keys, Source

_KINDS: Final = {
    "string_type": "text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "settings"),
}
"""What a setting must be, by the type of pydantic's error when it is something else."""
_LENGTHS: Final = frozenset({"too_long", "too_short", "string_too_long", "string_too_short"})
_CHOICES: Final = frozenset({"literal_error", "enum"})
_LONGEST: Final = 60
_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w-]{16,}|[rsp]k_(?:live|test)_\w{16,}|GOCSPX-[\w-]{20,}"
    r"|(?:A3T[0-9A-Z]|AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}|AIza[\w-]{30,}|(?:ya29|AQ)\.[\w-]{20,}"
    r"|ABSK[\w+/=]{40,}|ATATT3[\w=-]{30,}|(?:LTAI|ALTAK-)[A-Za-z0-9]{16,}|[A-Za-z0-9]{52}JQQJ9\w{16,}"
    r"|pat(?:\w{14}\.[0-9a-f]{40,}|-[a-z]{2}\d-[0-9a-f-]{36})|tskey-[\w-]{20,}|pa-[\w-]{40,}"
    r"|(?:figd|jina|esecret|sbp|sb_secret|e2b|tgp_v1|pcsk)_[\w-]{20,}"
    r"|gh[opsur]_\w{20,}|github_pat_\w{20,}|gl(?:pat|dt|rt|soat|ptt)-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}|hv[bs]\.[\w-]{20,}"
    r"|(?:hf|gsk|npm|r8|fw|glsa|glc|nvapi|pplx|xai|tvly|pcsk|lin_api|ntn|secret|key|whsec|sntrys"
    r"|shp(?:at|ss|ca|pa)|do[opr]_v1|dckr_pat|rubygems|ph[cx]|pypi|sq0[a-z]{3}|NRAK|PMAK|c?sk"
    r"|lsv2_[a-z]{2}|pul)[-_][A-Za-z0-9]{20,}|(?:SK|AC|dapi)[0-9a-f]{32}|AGE-SECRET-KEY-1[0-9A-Z]{50,}"
    r"|\d{8,10}:AA[\w-]{30,}|dp\.[a-z]{2}\.[\w.]{30,}|eyJ[\w-]{8,2000}\.[\w-]{8,}\.[\w-]*"
    r"|(?i:bearer)\s+[\w.~+/=-]{16,}|(?i:basic|token)\s+(?=\S*[\d=])[\w.~+/=-]{16,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|hooks\.slack\.com/services/\w|/webhooks/\d+/[\w-]{20,}",
    re.ASCII,
)
"""Keys of well-known services, tokens of the web, and what goes before a token in a header."""
_UUID: Final = re.compile(r"[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}", re.ASCII)
_LETTERS_AND_DIGITS: Final = re.compile(r"[A-Za-z\d+/=]{16,}", re.ASCII)
_WORD: Final = re.compile(r"\S{20,}", re.ASCII)
_RUN: Final = re.compile(r"[\w.~+/=-]{20,}", re.ASCII)
_SIGNS: Final = "+/="
_LEAST_WITH_DIGIT: Final = 16
_WORDS: Final = re.compile(
    r"(?:key|token|secret|password|passwd|passphrase|auth|authorization"
    r"|cookie|credentials?|signature)(?![a-z])"
    r"|(?<![a-z])(?:keys|pass|pwd|pw|cred|creds|sig|jwt|bearer)(?![a-z])"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_USER: Final = re.compile(r"://[^/?#\s]*@")
_PARAMETER: Final = re.compile(r"[?&;#]([^=&;#?]+)=[^&;#]")
_BY_NAME: Final = (("headers",), ("query",))
"""Settings whose own keys are names of headers and of parameters."""
_PLANTED: Final = frozenset({"system_prompt"})
"""Texts in which a made-up key may be planted on purpose."""


_Model = TypeVar("_Model", bound=BaseModel)


def checked_settings(
    model: type[_Model], given: Mapping[str, Any], source: Source, above: Keys = ()
) -> _Model:
    """Check settings against their model; every mistake is told with its place."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise ConfigError(first_lines(describe_mistakes(error, model, above, source))) from error


def first_lines(mistakes: Iterable[str]) -> str:
    """Return the first mistakes, each cut to a length, and how many more there are."""
    shown = []
    for line in "\n".join(mistakes).split("\n"):
        is_long = len(line) > LONGEST_MISTAKE
        shown.append(f"{line[: LONGEST_MISTAKE - 1]}…" if is_long else line)
    if len(shown) > MOST_MISTAKES:
        left = len(shown) - MOST_MISTAKES + 1
        shown[MOST_MISTAKES - 1 :] = [f"... and {left:,} more mistakes."]
    return "\n".join(shown)


def describe_mistakes(
    error: ValidationError,
    model: type[BaseModel],
    above: Keys,
    source: Source,
    *,
    common: tuple[str, ...] = (),
) -> Iterator[str]:
    """Say what is wrong with settings, each mistake in a line with its place in the file.

    A setting that may be one of several things is wrong once, not once for each of them.
    """
    groups: dict[Keys, list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        groups.setdefault(_place(item, above, source), []).append(item)
    inside = {path[:length] for path in groups for length in range(len(path))}
    for path, items in sorted(groups.items(), key=lambda group: source.nearest(group[0])):
        here, dotted = source.where(path), ".".join(map(as_word, path))
        others = [item for item in items if item["type"] not in _KINDS]
        for line in dict.fromkeys(_line(dotted, item, model, common) for item in others):
            yield f"{here}: {line}"
        # Where something inside it is wrong, a setting has the kind that was meant.
        if not others and path not in inside:
            yield f"{here}: {_before(dotted)}{_wrong_kind(items)}"


def _place(item: ErrorDetails, above: Keys, source: Source) -> Keys:
    """Return where a mistake stands: the steps of pydantic, without those that name a type."""
    path, last = above, len(item["loc"]) - 1
    for index, step in enumerate(item["loc"]):
        below = (*path, str(step))
        is_known = below in source.places or not source.places  # none: it was said in Python
        if is_known or (index == last and item["type"] == "missing"):
            path = below
    return path


def _line(dotted: str, item: ErrorDetails, model: type[BaseModel], common: tuple[str, ...]) -> str:
    if item["type"] == "extra_forbidden":
        known = [*common, *_known_keys(model, item["loc"][:-1])]
        hint = did_you_mean(str(item["loc"][-1]), known) or f" Known: {listed(known)}."
        return f"no setting is called {dotted!r}.{hint}"
    if item["type"] == "missing":
        hint = " Add the line: version: 1" if dotted == "version" else ""
        return f"{dotted!r} is missing.{hint}"
    return f"{_before(dotted)}{_wrong_value(item)}"


def _before(dotted: str) -> str:
    if not dotted:
        return ""
    return f"{dotted}: "


def _wrong_kind(items: Sequence[ErrorDetails]) -> str:
    """Say what a setting may be; never what came where a secret belongs."""
    models = {str(item.get("ctx", {}).get("class_name")) for item in items}
    if models == {Secret.__name__}:
        return "never write a secret into the file; name the variable that holds it: {env: NAME}."
    secrets = {Secret.__name__}
    for subclass in Secret.__subclasses__():
        secrets.add(subclass.__name__)
    may_be_secret = bool(models & secrets)
    kinds: dict[str, None] = {}  # each once, in order
    for item in items:
        kind = _KINDS[item["type"]]
        if may_be_secret and kind == "settings":
            kind = "{env: NAME}"
        kinds[kind] = None
    came = items[0]["input"]
    if "a list" in kinds and isinstance(came, dict):
        return "must be a list: put `- ` before each entry, or [ ] around one alone."
    *others, last = kinds
    must_be = f"must be {last}"
    if others:
        must_be = f"must be {', '.join(others)} or {last}"
    if may_be_secret:
        return f"{must_be}."
    return f"{must_be}{_came(came)}."


def _wrong_value(item: ErrorDetails) -> str:
    """Say what is wrong with a value and what came; never what came where a secret belongs."""
    if item["loc"][-1:] == ("env",):
        return "is not the name of a variable: use letters, digits and _ (never the secret)."
    message = item["msg"].removeprefix("Value error, ").removesuffix(".")
    if message.endswith("?"):
        return message
    if item["type"] in _LENGTHS:
        return _wrong_length(item)
    message = message.replace("Input should ", "must ", 1)
    hint = ""
    if item.get("ctx", {}).get("pattern") == NAME_PATTERN:
        message = "a name has letters, digits and _ . @ -, and no blank"
        plain = re.sub(r"[^A-Za-z0-9_.@-]+", "-", str(item["input"])).strip("-.@")
        if plain:
            hint = f" For example: {plain[:_LONGEST]}."
    if item["type"] in _CHOICES and isinstance(item["input"], str):
        choices = re.findall(r"'([^']*)'", str(item["ctx"].get("expected", "")))
        hint = did_you_mean(item["input"], choices)
    return f"{message}{_came(item['input'])}.{hint}"


def _wrong_length(item: ErrorDetails) -> str:
    """Say how many entries or characters there may be, and how many there are."""
    context, value = item["ctx"], item["input"]
    what = "entries"
    if isinstance(value, str):
        what = "characters"
    if "min_length" in context:
        least = context["min_length"]
        if least == 1:
            return "must not be empty."
        return f"must have at least {least:,} {what}."
    count = "more"
    if isinstance(value, str | list | dict):
        count = f"{len(value):,}"
    return f"must have at most {context['max_length']:,} {what}, found {count}."


def _came(value: object) -> str:
    if isinstance(value, str):
        return f", found {value[:_LONGEST]!r}"
    if isinstance(value, bool | int | float):
        return f", found {str(value).lower()}"
    if isinstance(value, list):
        return ", found a list"
    return ""


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Follow a location into nested models and return the keys known there."""
    here: type[BaseModel] | None = model
    for step in loc:
        if here is None or not isinstance(step, str) or step not in here.model_fields:
            continue  # an index or a free key: the model stays the one of its values
        here = _model_inside(here.model_fields[step].annotation)
    fields = here.model_fields if here is not None else {}
    return [info.alias or name for name, info in fields.items()]


def _model_inside(annotation: object) -> type[BaseModel] | None:
    """Return the first settings model in an annotation such as `dict[str, Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        model = _model_inside(inner)
        if model is not None:
            return model
    return None


def require_no_literal_secret(document: object, source: Source) -> None:
    """Refuse settings in which a key is written out; the message never repeats it."""
    lines = []
    for path, what in dict.fromkeys(_literal_secrets(document, ())):
        dotted = ".".join(map(as_word, path))
        lines.append(
            f"{source.where(path)}: {dotted}: {what}, which never "
            "stands in the file. Set an environment variable to it and name that: {env: NAME}, "
            "as a value under headers or query, or as the whole url."
        )
    if lines:
        raise ConfigError("\n".join(lines))


def names_secret(name: str) -> bool:
    """Tell whether a header or a parameter of this name carries a secret."""
    return _WORDS.search(_CAMEL.sub("-", name).lower()) is not None


def may_be_bare_key(text: str) -> bool:
    """Tell whether a text holds what says nothing by its shape, and is a key under such a name.

    Letters and digits of some length, or a long word of small and capital letters and digits.
    Each character is looked at a fixed number of times: an expression would look at each word
    again from each of its letters.
    """
    if _UUID.search(text):
        return True
    for run in _LETTERS_AND_DIGITS.finditer(text):
        if _has_digit_early(run[0]):
            return True
    return any(_is_mixed(word[0]) for word in _WORD.finditer(text))


def _has_digit_early(run: str) -> bool:
    """Tell whether enough of a run is left from the letters before its first digit on."""
    digit = re.search(r"[0-9]", run)
    if digit is None:
        return False
    start = 1 + max(run.rfind(sign, 0, digit.start()) for sign in _SIGNS)
    return len(run) - start >= _LEAST_WITH_DIGIT


def _is_mixed(word: str) -> bool:
    """Tell whether a digit, a small and a capital letter stand in a word from a long run on."""
    first = _RUN.search(word)
    if first is None:
        return False
    kinds = (digits, ascii_lowercase, ascii_uppercase)
    return all(_last_of(kind, word) >= first.start() for kind in kinds)


def _last_of(letters: str, word: str) -> int:
    return max(word.rfind(letter) for letter in letters)


def _literal_secrets(value: object, path: Keys) -> Iterator[tuple[Keys, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            below = (*path, str(key))
            is_named = path[-1:] in _BY_NAME and isinstance(inner, str | int | float)
            is_bare = isinstance(inner, str) and may_be_bare_key(inner)
            if _is_secret_text(str(key)):
                yield path, "one of its names holds a key"
            elif (is_named or is_bare) and names_secret(below[-1]):
                yield below, "this holds a secret"
            elif below[-1] not in _PLANTED:
                yield from _literal_secrets(inner, below)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _literal_secrets(inner, (*path, str(index)))
    elif isinstance(value, str) and _is_secret_text(value):
        yield path, "this holds what looks like a key or a password"


def _is_secret_text(text: str) -> bool:
    """Tell whether a text has the shape of a key, or is an address that carries one."""
    shaped = _SHAPES.search(text) or _SHAPES.search(unquote_plus(text))
    names = _PARAMETER.findall(text) if _ADDRESS.match(text) else ()
    is_address_of_user = _ADDRESS.match(text) and _USER.search(text)
    return bool(shaped or is_address_of_user) or any(map(names_secret, names))
