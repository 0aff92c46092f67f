"""Ten thousand keys of well-known providers, written out in a configuration or read from outside."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from pathlib import Path
from string import ascii_letters, ascii_uppercase, digits, hexdigits
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest
from tests.journeys.command_line import guardmark, write_rows

from guardmark.app.parts.loading import parse_config
from guardmark.core.errors import ConfigError
from guardmark.net.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

HEX: Final = hexdigits[:16]
WORD: Final = ascii_letters + digits
URL_SAFE: Final = WORD + "-_"
FORMATS: Final = (
    "sk-{W48} sk-proj-{U64} sk-ant-api03-{U93} sk-or-v1-{H64} sk_live_{W24} rk_live_{W24} pk_test_{W24}",
    "whsec_{W32} AKIA{A16} ASIA{A16} AIza{U35} ya29.{U60} GOCSPX-{U28} ghp_{W36} gho_{W36} ghs_{W36}",
    "github_pat_{W22}_{W59} glpat-{U20} gldt-{U20} xoxb-{D12}-{D12}-{W24} xoxp-{D12}-{W24} xapp-1-{A11}-{H64}",
    "SG.{U22}.{U43} SK{H32} AC{H32} key-{H32} hf_{L34} gsk_{W52} npm_{W36} r8_{W37} fw_{W24} nvapi-{W64}",
    "pplx-{W48} xai-{W80} tvly-{W32} pcsk_{W70} lsv2_pt_{H32}_{H10} lin_api_{W40} ntn_{W46} secret_{W43}",
    "sntrys_{W64} shpat_{H32} dop_v1_{H64} dckr_pat_{W27} hvs.{U90} rubygems_{H48} phc_{W43} NRAK-{A27}",
    "pypi-AgEIcHlwaS5vcmc{W80} PMAK-{H24}-{H34} dapi{H32} glsa_{W32}_{H8} sq0atp-{W22} dp.pt.{W43}",
    "AGE-SECRET-KEY-1{A58} {D10}:AA{U33} eyJ{U20}.eyJ{U60}.{U43} Bearer~{U40} Basic~{B30} Token~{H40}",
    "AQ.{U50} ABSK{W110} figd_{U40} pul-{H40} tskey-auth-{W12}-{W32} jina_{H32}{W28} esecret_{W28} sbp_{H40}",
    "ATATT3xFfGF0{U180} sb_secret_{U31} pcsk_{W6}_{W63} LTAI5t{W18} tgp_v1_{U43} dp.st.prd.{W42} e2b_{H40}",
    "pat{W14}.{H64} sk_{H48} csk-{W48} pa-{W43} bce-v3/ALTAK-{W21}/{H40} {W52}JQQJ99{W14}AAA{W9}",
    "https://hooks.slack.com/services/T{A10}/B{A10}/{W24} https://discord.com/api/webhooks/{D18}/{U68}",
)
"""How keys look: a letter for the characters, then how many. To add a provider, add its format."""
LETTERS: Final = {
    "W": WORD,
    "U": URL_SAFE,
    "H": HEX,
    "D": digits,
    "L": ascii_letters,
    "A": ascii_uppercase + digits,
}
COUNT: Final = 10_000


def make(form: str, rng: random.Random) -> str:
    """A key of a format."""
    first, *parts = form.replace("~", " ").split("{")
    text = first
    for part in parts:
        (letter, *count), rest = part.split("}")
        size = int("".join(count))
        if letter == "B":
            text += b64encode(rng.randbytes(size)).decode()
        else:
            text += "".join(rng.choices(LETTERS[letter], k=size))
        text += rest
    return text


def keys(count: int) -> list[str]:
    """Keys, as many of each format."""
    forms, rng = [form for line in FORMATS for form in line.split()], random.Random(4242)
    return [make(forms[number % len(forms)], rng) for number in range(count)]


PLACES: Final[tuple[Callable[[str], dict[str, Any]], ...]] = (
    lambda key: {"headers": {"X-Custom": key}},
    lambda key: {"url": f"https://guard.example/v1/{quote(key, safe=':.=+/')}/check"},
    lambda key: {"url": key if "://" in key else f"https://guard.example/check?v={key}"},
    lambda key: {"query": {"v": key}},
    lambda key: {"body": {"text": {"$input": "text"}, "deep": [{"a": f"is {key} here"}]}},
)
"""Where somebody may write one."""


def document(*defenses: dict[str, Any]) -> str:
    """A configuration of services with a key somewhere."""
    usual = {"type": "http", "url": "https://guard.example/check", "blocked": "$.blocked"}
    usual["body"] = {"text": {"$input": "text"}}
    named = {f"guard-{number}": usual | each for number, each in enumerate(defenses)}
    return json.dumps({"version": 1, "data": [{"path": "data.jsonl"}], "defenses": named})


def bare(key: str) -> str:
    """What of a header is the secret, in the form in which it would be printed."""
    return key.rpartition(" ")[2]


def test_no_written_key_is_taken_or_repeated() -> None:
    """In a header, an address, a parameter or a body; a message names the place and the way out."""
    for number, key in enumerate(keys(COUNT)):
        place = PLACES[number % len(PLACES)] if " " not in key else PLACES[0]
        with pytest.raises(ConfigError) as refused:
            parse_config(document(place(key)), folder=Path(), shown_as="bench.yaml")
        message = str(refused.value)
        assert "{env: NAME}" in message, key
        assert bare(key) not in message


def test_no_file_and_no_output_of_a_refused_command_holds_one(tmp_path: Path) -> None:
    """Commands that read a configuration with every format in every place leave nothing behind."""
    some = keys(200)
    parts = [place(key) for key in some for place in PLACES if " " not in key]
    (tmp_path / "bench.yaml").write_text(document(*parts), encoding="utf-8")
    write_rows(tmp_path / "data.jsonl", [{"id": "s", "text": "t", "label": "attack"}])
    for command in (("run", "bench.yaml", "-o", "out"), ("check", "bench.yaml")):
        done = guardmark(*command, cwd=tmp_path)
        assert done.code == 2, done.err
        assert not [key for key in some if bare(key) in done.out + done.err]
    assert {path.name for path in tmp_path.rglob("*")} == {"bench.yaml", "data.jsonl"}


def test_a_key_that_a_service_sends_back_is_found_in_every_form() -> None:
    """Plain, in JSON, in an address, in Base64 and in hexadecimal digits."""
    for key in keys(COUNT // 10):
        redactor = Redactor()
        redactor.hide(key)
        secret = bare(key)
        encoded = b64encode(f"user {secret}".encode()).decode()
        told = f"echo {secret} {json.dumps(secret)} {quote(secret, safe='')} {encoded}"
        clean = redactor.text(f"{told} {secret.encode().hex()}")
        for form in (secret, quote(secret, safe=""), secret.encode().hex(), encoded):
            assert form not in clean, key
