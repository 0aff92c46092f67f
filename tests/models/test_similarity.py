"""Sameness by embeddings over the wire: a cosine, or nothing; never a guess."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.conftest import Serve

from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ErrorKind
from guardmark.core.protocols import PairJudge
from guardmark.core.usage import Usage
from guardmark.models.similarity import (
    EmbeddingSettings,
    LocalEmbeddingSettings,
    SimilarityJudge,
    TauSettings,
    cosine,
)
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

USAGE = {"prompt_tokens": 9, "total_tokens": 9}


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """The client of a run, that does not try twice."""
    client = Services(default=ServiceLimits(retries=0))
    yield client
    await client.close()


class Server:
    """Answers every request with one document, and keeps what it was asked."""

    def __init__(self, reply: object) -> None:
        self.reply = reply
        self.requests: list[tuple[str, dict[str, Any], str]] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        key = request.headers.get("Authorization", "")
        self.requests.append((request.path, await request.json(), key))
        if isinstance(self.reply, int):
            return web.Response(status=self.reply, text="no")
        return web.Response(text=json.dumps(self.reply), content_type="application/json")


def vectors(*each: object) -> dict[str, object]:
    """Return what a server says of some texts."""
    data = [{"index": i, "embedding": vector} for i, vector in enumerate(each)]
    return {"data": data, "usage": USAGE}


Judging = Callable[[object], Any]


@pytest.fixture
def judging(serve: Serve, services: Services) -> Judging:
    """Build a judge whose server answers with one document."""

    async def build(reply: object, **said: object) -> tuple[SimilarityJudge, Server]:
        server = Server(reply)
        url = (await serve(server.respond)).url
        settings = EmbeddingSettings.model_validate(
            {"base_url": f"{url}/v1/", "model": "small", "tau": 0.8, **said}
        )
        context = BuildContext(folder=Path(), seed=7, services=services, defenses={})
        built = settings.build("equivalence", context)
        assert isinstance(built, PairJudge)
        assert isinstance(built, SimilarityJudge)
        return built, server

    return build


async def test_both_texts_go_into_one_call(
    judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With model, options and key; tokens are priced."""
    monkeypatch.setenv("EMBED_KEY", "s3cret")
    judge, server = await judging(
        vectors([3, 4], [4, 3]),
        api_key={"env": "EMBED_KEY"},
        options={"dimensions": 2},
        price={"input_per_1k": 1.0, "output_per_1k": 5.0},
    )
    response = await judge.compare("one", "two")
    assert json.loads(response.text) == {"same": True, "cosine": pytest.approx(0.96)}
    assert response.evidence.usage == Usage(
        prompt_tokens=9, completion_tokens=0, cost=pytest.approx(0.009)
    )
    ((path, body, key),) = server.requests
    assert path == "/v1/embeddings"
    assert body == {
        "model": "small",
        "input": ["one", "two"],
        "encoding_format": "float",
        "dimensions": 2,
    }
    assert key == "Bearer s3cret"


@pytest.mark.parametrize(
    ("tau", "same"), [(0.96, True), (0.9600001, False), (1.0, False), (-1.0, True)]
)
async def test_tau_itself_is_the_same_request(judging: Judging, tau: float, *, same: bool) -> None:
    """From tau on; below it, another request."""
    judge, _ = await judging(vectors([3, 4], [4, 3]), tau=tau)
    assert json.loads((await judge.compare("a", "b")).text)["same"] is same


async def test_vectors_are_told_apart_by_their_number(judging: Judging) -> None:
    """A server may answer in another order."""
    reply = vectors([1, 0], [0, 1])
    reply["data"] = [
        {"index": 1, "embedding": [0, 1]},
        {"index": 0, "embedding": [1, 0]},
    ]
    judge, _ = await judging(reply)
    _, answer = await judge.similarity("a", "b")
    assert answer.vectors == ((1.0, 0.0), (0.0, 1.0))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (vectors([1, 0]), "not of the protocol"),
        (vectors([1, 0], [0, 1], [1, 1]), "not of the protocol"),
        (vectors([1, 0], [0, 1, 0]), "differ in their dimensions"),
        (vectors([1, 0], [0, math.nan]), "not a finite number"),
        (vectors([1, 0], [0, math.inf]), "not a finite number"),
        (vectors([1, 0], [0, 0]), "all zeros"),
        (vectors([], []), "empty"),
        (vectors([1, 0], [True, 0]), "not of the protocol"),
        (vectors([1, 0], ["1", 0]), "not of the protocol"),
        (vectors([1, 0], "AAAA"), "not of the protocol"),
        (vectors([1, 0], [10**400, 0]), "not of the protocol"),
        ({"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}, "protocol"),
        ({"data": None}, "not of the protocol"),
        ([1], "not of the protocol"),
        ("words", "not of the protocol"),
    ],
)
async def test_what_cannot_be_compared_is_neither_same_nor_different(
    judging: Judging, reply: object, words: str
) -> None:
    """A response without text, an error of kind contract, and the reason."""
    judge, _ = await judging(reply)
    response = await judge.compare("a", "b")
    assert response.text is None
    assert response.error_kind is ErrorKind.CONTRACT
    assert words in response.evidence.message


async def test_a_failed_call_is_no_answer_either(judging: Judging) -> None:
    """A wrong key, in the words of the server too."""
    judge, _ = await judging(401)
    response = await judge.compare("a", "b")
    assert (response.text, response.error_kind) == (None, ErrorKind.REFUSED)


_VECTOR = st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3).filter(any)


@given(_VECTOR, _VECTOR, st.floats(1e-3, 1e3))
def test_a_cosine_knows_neither_order_nor_length(
    one: list[float], two: list[float], scale: float
) -> None:
    """It lies in [-1, 1], also where squares would overflow; a text is the same as itself."""
    first, second = tuple(one), tuple(two)
    value = cosine(first, second)
    assert -1.0 <= value <= 1.0
    assert value == pytest.approx(cosine(second, first), abs=1e-12)
    assert cosine(first, first) == pytest.approx(1.0)
    scaled = tuple(x / max(map(abs, first)) * scale for x in first)
    if any(scaled):
        assert cosine(scaled, second) == pytest.approx(value, abs=1e-6)


CALIBRATION = {
    "pairs": "pairs.jsonl",
    "sha256": "ab" * 32,
    "model": "small",
    "tau": 0.8,
    "bound": 0.05,
    "different": 120,
    "false_same": 1,
    "same": 100,
    "true_same": 90,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tau": 0.7}, "calibrate anew"),
        ({"model": "large"}, "calibrate anew"),
        ({"tau": 1.5}, "less than or equal to 1"),
        ({"base_url": None}, "needs a base_url"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, object], words: str) -> None:
    """A threshold changed by hand is not the one that was calibrated."""
    said = {"base_url": "http://x", "model": "small", "tau": 0.8, "calibration": CALIBRATION}
    assert EmbeddingSettings.model_validate(said).calibration is not None
    with pytest.raises(ValidationError, match=words):
        EmbeddingSettings.model_validate({**said, **change})


def test_a_threshold_belongs_to_the_encoder_it_was_calibrated_with() -> None:
    """Another folder is another encoder: its cosines mean something else."""
    said = {"path": "small", "tau": 0.8, "calibration": CALIBRATION}
    assert LocalEmbeddingSettings.model_validate(said).calibration is not None
    with pytest.raises(ValidationError, match="tau or model is not what was calibrated"):
        LocalEmbeddingSettings.model_validate({**said, "path": "large"})


class NamelessSettings(TauSettings):
    """Of a package that has one model and gives it no name."""


def test_an_encoder_without_a_name_is_calibrated_under_none() -> None:
    """What was calibrated for a named one is not for it."""
    said = {"tau": 0.8, "calibration": {**CALIBRATION, "model": ""}}
    assert NamelessSettings.model_validate(said).calibration is not None
    with pytest.raises(ValidationError, match="tau or model is not what was calibrated"):
        NamelessSettings.model_validate({"tau": 0.8, "calibration": CALIBRATION})


def test_without_services_it_cannot_be_built() -> None:
    """A calculation that may call nothing says so."""
    settings = EmbeddingSettings.model_validate({"preset": "vllm", "model": "small"})
    with pytest.raises(ConfigError, match="not possible here"):
        settings.build(
            "equivalence", BuildContext(folder=Path(), seed=7, services=None, defenses={})
        )


async def test_an_address_from_the_environment_is_used_and_hidden(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a message says of it is the name of the variable; a refusal repeats nothing of it."""
    server = Server(500)
    url = (await serve(server.respond)).url
    monkeypatch.setenv("EMBEDDINGS_URL", f"{url}/hidden-tenant/v1/")
    settings = EmbeddingSettings.model_validate(
        {"base_url": {"env": "EMBEDDINGS_URL"}, "model": "small", "tau": 0.8}
    )
    context = BuildContext(folder=Path(), seed=7, services=services, defenses={})
    judge = settings.build("equivalence", context)
    assert isinstance(judge, SimilarityJudge)
    answer = await judge.compare("a", "b")
    assert server.requests[0][0] == "/hidden-tenant/v1/embeddings"
    assert "hidden-tenant" not in repr(answer)
    for text in (f"no answer of {url}/hidden-tenant/v1/ came", f"{url} is down"):
        assert url not in services.redactor.text(text)
    alone = BuildContext(folder=Path(), seed=7, services=None, defenses={})
    with pytest.raises(ConfigError, match="EMBEDDINGS_URL"):
        settings.build("equivalence", alone)
