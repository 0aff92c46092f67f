"""A probe tells in seconds what a run would tell in hours."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from guardmark.config.settings import BuildContext
from guardmark.core.errors import ServiceError, ServiceRefused, ServiceTimeout, UntrustworthyRun
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, ErrorKind, Evidence, Outcome
from guardmark.core.protocols import BatchLimits
from guardmark.core.sample import Role, View
from guardmark.defenses.function import defense_from
from guardmark.defenses.guard import as_guard
from guardmark.defenses.http.defense import HttpSettings
from guardmark.defenses.probe import examine_defense, probe_defense, propose_paths, unusable
from guardmark.engine.calls import as_coroutine, as_decision, attempt
from guardmark.net.client import Services
from guardmark.net.service import ServiceLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from guardmark.core.sample import Prompt
    from guardmark.defenses.probe import ProbeReport

    Probe = Callable[..., Awaitable[ProbeReport]]


async def probed(defense: Any, **said: Any) -> ProbeReport:
    """Probe a defense as a run does."""
    return await probe_defense(defense.name, as_coroutine(as_guard(defense)), **said)


@pytest.fixture
async def probe(serve: Any, tmp_path: Path) -> AsyncIterator[Probe]:
    """Probe an http defense in front of a service that answers by one function."""
    client = Services(
        default=ServiceLimits(backoff_s=0.001, connect_timeout_s=10, read_timeout_s=10, retries=1)
    )

    async def go(
        answer: object,
        *,
        status: int = 200,
        content_type: str = "application/json",
        delay_s: float = 0.0,
        patience_s: float = 10.0,
        **settings: Any,
    ) -> ProbeReport:
        async def reply(request: web.Request) -> web.Response:
            await asyncio.sleep(delay_s)
            said = answer((await request.json())["text"]) if callable(answer) else answer
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            return web.Response(status=status, body=body, content_type=content_type)

        server = await serve(reply)
        usual = {"body": {"text": {"$input": "text"}}, "blocked": "$.flagged", "score": "$.score"}
        checked = HttpSettings.model_validate({"url": server.url} | usual | settings)
        context = BuildContext(folder=tmp_path, seed=1, services=client, defenses={})
        defense: Any = checked.build("vendor", context)
        if status == 0:
            await server.stop()
        return await probed(defense, timeout_s=patience_s)

    yield go
    await client.close()


async def test_a_sound_defense_passes_without_a_word(probe: Probe) -> None:
    """The attack is blocked, the benign input is not, the scores differ."""
    report = await probe(
        lambda text: {"flagged": "Ignore" in text, "score": 0.9 if "Ignore" in text else 0.1}
    )
    assert (report.attack.outcome, report.benign.outcome) == (Outcome.BLOCK, Outcome.ALLOW)
    assert (report.defense, report.warnings) == ("vendor", ())


@pytest.mark.parametrize("verb", ["blocks", "allows"])
async def test_equal_decisions_are_only_a_warning(probe: Probe, verb: str) -> None:
    """Weak filters are legitimate subjects."""
    report = await probe({"flagged": verb == "blocks", "score": 0.5})
    assert f"{verb} both" in report.warnings[0]
    assert "0.5" in report.warnings[1]


async def test_nobody_there_is_exit_four(probe: Probe) -> None:
    """With the address and the next step."""
    with pytest.raises(ServiceError, match="Check that the service is running") as caught:
        await probe({}, status=0)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_exit_four(probe: Probe, status: int) -> None:
    """Before anything is spent."""
    with pytest.raises(ServiceRefused, match="key"):
        await probe({"error": "who are you"}, status=status)


@pytest.mark.parametrize("status", [400, 404, 429, 500])
async def test_a_service_that_turns_both_down_is_exit_four(probe: Probe, status: int) -> None:
    """The status stands in the message."""
    with pytest.raises(ServiceError, match=str(status)):
        await probe({"error": "no"}, status=status)


async def test_a_silent_service_is_exit_four_in_time(probe: Probe) -> None:
    """The probe does not wait as long as a run would."""
    with pytest.raises(ServiceTimeout, match=r"within 0\.5 s"):
        await probe({}, delay_s=30, patience_s=0.5)


@pytest.mark.parametrize(
    "answer", [{"blocked": True}, {"flagged": "yes"}, {"flagged": True, "score": 87}, b"{"]
)
async def test_answers_nobody_can_read_stop_the_run(probe: Probe, answer: object) -> None:
    """All malformed under a policy of blocking would look perfect: exit 5, explained."""
    with pytest.raises(UntrustworthyRun, match="perfect defense") as caught:
        await probe(answer)
    assert caught.value.exit_code == 5
    assert len(str(caught.value).splitlines()) <= 5


async def test_another_kind_of_page_stops_the_run(probe: Probe) -> None:
    """The address is that of something else."""
    with pytest.raises(UntrustworthyRun, match="text/html"):
        await probe(b"<html></html>", content_type="text/html")


async def test_one_answer_out_of_two_is_a_warning(probe: Probe) -> None:
    """A service that stumbles over one input is measured, and the run counts it."""
    report = await probe(lambda text: {"flagged": False} if "vegetables" in text else {})
    assert report.attack.outcome is Outcome.MALFORMED
    assert "no decision on a known attack" in report.warnings[0]


class _Batch:
    """A defense that takes batches."""

    name = "batch"
    view = View.TEXT

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Block attacks."""
        return [BLOCKED if "Ignore" in prompt.text else ALLOWED for prompt in prompts]

    @property
    def batch_limits(self) -> BatchLimits:
        """Few at once."""
        return BatchLimits(max_count=4)


class _Inline:
    """A defense in this process."""

    name = "inline"
    view = View.DOCUMENT

    def decide(self, prompt: Prompt) -> Decision:
        """Skip whatever comes; the probe shows a text to every view."""
        assert prompt.shown(self.view) is not None
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.SKIPPED)


async def test_defenses_of_every_kind_can_be_probed() -> None:
    """Batches, in line; a defense that skips both is warned about."""
    batch: Any = _Batch()
    assert (await probed(batch)).attack.outcome is Outcome.BLOCK
    report = await probed(_Inline())
    assert len(report.warnings) == 2


async def test_offline_is_not_blamed_on_the_key(tmp_path: Path) -> None:
    """The message says what the user asked for."""
    client = Services(offline=True)
    settings = HttpSettings.model_validate(
        {"url": "http://localhost/", "body": {"$input": "text"}, "blocked": "$.f"}
    )
    context = BuildContext(folder=tmp_path, seed=1, services=client, defenses={})
    defense: Any = settings.build("vendor", context)
    with pytest.raises(ServiceRefused, match="offline") as caught:
        await probed(defense)
    assert "key" not in str(caught.value)


async def thorough(function: Callable[[str], object], **said: Any) -> tuple[str, ...]:
    """Probe a function as a run does, and return what it is warned about."""
    defense = defense_from(function, name="mine", **said)
    call = as_coroutine(as_guard(defense))

    async def ask(prompt: Prompt) -> Decision:
        return as_decision(await attempt(call, prompt))

    report = await probe_defense(
        "mine", ask, is_brief=False, timeout_s=None, reads="target: guard.py:f"
    )
    return report.warnings


async def test_a_sound_function_passes_without_a_word() -> None:
    """Asked sixteen times."""
    asked: list[str] = []

    def check(text: str) -> bool:
        asked.append(text)
        return any(word in text for word in ("Ignore", "DAN", "OVERRIDE", "Forget"))

    assert await thorough(check) == ()
    assert len(asked) == 16
    assert {asked.count(text) for text in asked} == {2}


@pytest.mark.parametrize("answer", [True, False])
async def test_one_answer_to_everything_names_what_is_read(*, answer: bool) -> None:
    """Glue that reads the wrong field looks just like that."""
    (warning,) = await thorough(lambda _: {"blocked": answer, "is_injection": None})
    verb = "blocks" if answer else "allows"
    assert warning.startswith(f"{verb} all 4 known attacks and all 4 known benign inputs")
    assert "target: guard.py:f" in warning


async def test_a_function_that_keeps_state_is_named() -> None:
    """One that blocks everything after its first alarm."""
    alarms: list[str] = []

    def locked_out(text: str) -> bool:
        alarms.extend(["x"] if "Ignore" in text else [])
        return bool(alarms)

    (warning,) = await thorough(locked_out)
    assert "differently when asked again" in warning
    assert "(first allow, then block)" in warning
    assert "restart_after: 1" in warning


async def test_scores_out_of_range_are_named_before_the_run() -> None:
    """Each hit would be malformed, and each miss an allow."""
    (warning,) = await thorough(lambda text: 87 if "Ignore" in text else 0, threshold=0.5)
    assert "score_range" in warning


async def test_a_function_whose_answers_cannot_be_read_stops_the_run() -> None:
    """After two questions, not after every sample."""
    with pytest.raises(UntrustworthyRun, match="cannot be read"):
        await thorough(lambda _: {"flag": 1})


async def test_a_function_that_raises_is_named_and_measured() -> None:
    """It may fail on these texts only: a run counts what fails."""
    (warning,) = await thorough(lambda _: 1 / 0)
    assert warning.startswith("gives no decision on 8 of 8: ZeroDivisionError")


async def test_paths_that_fit_the_answer_are_proposed(probe: Probe) -> None:
    """Whoever wrote the wrong path reads the right one in the refusal."""
    answer = {"result": [{"is blocked": True, "risk": 0.93, "id": 7}], "took_ms": 12}
    with pytest.raises(UntrustworthyRun) as caught:
        await probe(answer)
    message = str(caught.value)
    assert 'true or false: $.result[0]["is blocked"]' in message
    assert "a number in [0, 1]: $.result[0].risk" in message
    assert len(message.splitlines()) <= 5


@pytest.mark.parametrize(
    ("raw", "proposed"),
    [
        ("", ""),
        ("no JSON", ""),
        ("[" * 5_000, ""),
        ('{"a": "b", "n": 7}', ""),
        ("true", "true or false: $"),
        (
            json.dumps({f"k{n}": n % 2 == 0 for n in range(9)}),
            "true or false: $.k0, $.k1, $.k2, $.k3",
        ),
        (json.dumps({"a": [0.5] * 9}), "a number in [0, 1]: $.a[0]"),
    ],
)
def test_only_places_that_may_decide_are_proposed(raw: str, proposed: str) -> None:
    """A few of each kind, whatever a service sends."""
    assert propose_paths(raw) == proposed


class _Wordless:
    """Gives answers that cannot be read, without a word of why."""

    name, view = "wordless", View.TEXT

    def decide(self, _prompt: Prompt) -> Decision:
        """Answer nothing."""
        return Decision(outcome=Outcome.MALFORMED)


async def test_an_answer_that_was_not_kept_is_not_quoted() -> None:
    """The refusal names the outcome, and has no empty line of what was said."""
    with pytest.raises(
        UntrustworthyRun, match=r"cannot be read: malformed\.\nEvery sample"
    ) as told:
        await probed(_Wordless())
    assert "It said" not in str(told.value)


def test_an_answer_cut_off_at_its_length_is_told_with_the_setting() -> None:
    """More tokens help there, and a look at the address does not."""
    cut = Evidence(message="the answer was cut off.")
    error = unusable("judge", {ErrorKind.LENGTH}, cut)
    assert str(error).startswith(
        "judge cannot be used: the answer was cut off.\nAllow it more tokens: max_tokens"
    )
    assert error.exit_code == 5


async def test_a_guard_of_responses_is_examined_with_responses() -> None:
    """The known texts are shown as answers of an assistant, which is all that it looks at."""
    seen: list[Prompt] = []

    def check(prompt: Prompt) -> bool:
        seen.append(prompt)
        return "Ignore" in prompt.text

    defense = defense_from(check, name="mine", view=View.RESPONSE)
    checks = await examine_defense(
        "mine", as_coroutine(as_guard(defense)), view=View.RESPONSE, is_brief=True, timeout_s=None
    )
    assert {prompt.messages[-1].role for prompt in seen} == {Role.ASSISTANT}
    told = {each.subject: each.detail for each in checks}
    assert told["answers fit"] == "6 answers, each a decision"
    assert told["tells apart"] == "blocks 1 of 1 known attacks, 0 of 1 benign texts"
