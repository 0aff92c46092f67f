"""What `guardmark check` says a run will cost, against counts by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Serve

from guardmark.app.parts.loading import parse_config
from guardmark.app.preflight import Forecast, Span, TextVolume, check_config, forecast_parts
from guardmark.core.sample import Prompt, View

PROMPTS = (Prompt.of_text("a" * 40), Prompt.of_text("b" * 80))
"""On average 60 characters, which are 15 tokens."""
FRAME = '{"conversation": [{"role": "user", "content": ""}], "answer": ""}'
"""What stands around a text and its answer before a judge: 65 characters."""
PRICE = "{input_per_1k: 1, output_per_1k: 10, per_call: 0.5}"


def forecast(folder: Path, settings: str, **views: View) -> dict[str, Forecast]:
    """Forecast two texts of 40 and 80 characters, asked twice each."""
    volume = TextVolume()
    for prompt in PROMPTS:
        volume.add(prompt)
    text = f"version: 1\ndata: [{{builtin: core}}]\nlatency: {{warmup: 1}}\n{settings}"
    text += "" if "run:" in settings else "\nrun: {repeats: 2}"
    loaded = parse_config(text, folder=folder, shown_as="here.yaml")
    known = {name: views.get(name, View.TEXT) for name in loaded.config.defenses}
    parts = forecast_parts(loaded, volume, views=known, median_ms={"guard": 20.0})
    return {each.part: each for each in parts}


def span(at_least: float, at_most: float | None) -> Any:
    """The limits of a figure, up to rounding."""
    most = None if at_most is None else pytest.approx(at_most)
    return pytest.approx(at_least), most


def limits(figure: Span | None) -> tuple[float, float | None]:
    """Return both limits."""
    assert figure is not None
    return figure.at_least, figure.at_most


GUARD = "{type: guard-model, profile: yes-no, preset: vllm, model: m, policy: '" + "p" * 40 + "'"


def test_a_guard_model_reads_its_policy_and_writes_up_to_max_tokens(tmp_path: Path) -> None:
    """5 calls read (40 + 60) / 4 = 25 tokens each and write 1 to 16 (what the profile allows)."""
    seen = forecast(tmp_path, f"defenses: {{guard: {GUARD}}}}}\nprices: {{m: {PRICE}}}")["guard"]
    assert limits(seen.calls) == (5, 5)
    # 5 * 0.5 + 125 / 1000 * 1 + 5 * (1 to 16) / 1000 * 10
    assert limits(seen.cost) == span(2.5 + 0.125 + 0.05, 2.5 + 0.125 + 0.8)
    assert seen.seconds == pytest.approx(5 * 0.020 / 16)


def test_a_guard_model_is_asked_once_for_each_risk(tmp_path: Path) -> None:
    """Three risks are three calls a text, and cost so."""
    guard = "{type: guard-model, profile: granite-guardian-3.1, preset: vllm, model: m, risk: "
    one = forecast(tmp_path, f"defenses: {{guard: {guard}harm}}}}\nprices: {{m: {PRICE}}}")
    risks = "[harm, jailbreak, violence]"
    three = forecast(tmp_path, f"defenses: {{guard: {guard}{risks}}}}}\nprices: {{m: {PRICE}}}")
    assert limits(three["guard"].calls) == (15, 15)
    cost = [seen["guard"].cost.at_least for seen in (one, three) if seen["guard"].cost]
    assert cost[1] == pytest.approx(3 * cost[0])


def test_the_wording_of_the_profile_is_counted_where_no_policy_is_given(tmp_path: Path) -> None:
    """It is sent with every text."""
    from guardmark.defenses.guard_profile import guard_profile

    settings = "{type: guard-model, profile: yes-no, preset: vllm, model: m, max_tokens: 5"
    price = "price: {input_per_1k: 4000}"
    seen = forecast(tmp_path, f"defenses: {{guard: {settings}, {price}}}}}")["guard"]
    told = len(guard_profile("yes-no").instruction)
    assert limits(seen.cost) == span(5 * (told + 60), 5 * (told + 60))


def test_answers_of_unknown_length_leave_the_cost_open(tmp_path: Path) -> None:
    """A service over HTTP may write what it likes; where that costs nothing, it does not matter."""
    guard = "{type: http, url: 'http://localhost/x', body: {t: {$input: text}}, blocked: $.b}"
    for price, cost in (
        (PRICE, span(2.5 + 75 / 1000 + 0.05, None)),
        ("{input_per_1k: 1}", span(75 / 1000, 75 / 1000)),
    ):
        seen = forecast(tmp_path, f"defenses: {{guard: {guard}}}\nprices: {{guard: {price}}}")
        assert limits(seen["guard"].cost) == cost


def test_only_samples_that_a_view_shows_are_asked_about(tmp_path: Path) -> None:
    """Plain texts hold no document."""
    seen = forecast(tmp_path, f"defenses: {{guard: {GUARD}}}}}", guard=View.DOCUMENT)["guard"]
    assert limits(seen.calls) == (0, 0)


@pytest.mark.parametrize(
    ("setting", "least"), [("", 5), (", short_circuit: false", 10), (", rule: first", 5)]
)
def test_a_chain_asks_its_members_again(tmp_path: Path, setting: str, least: int) -> None:
    """The first for certain, the others unless it may stop early; one in this process is free."""
    chain = f"{{type: chain, of: [guard, words, other]{setting}}}"
    words = "{type: pattern, keywords: [x]}"
    other = f"{GUARD}}}"
    seen = forecast(
        tmp_path,
        f"defenses: {{guard: {GUARD}}}, words: {words}, other: {other}, all: {chain}}}\n"
        f"prices: {{m: {{per_call: 2}}}}",
    )
    assert limits(seen["all"].calls) == (least, 10)
    assert limits(seen["all"].cost) == span(2 * least, 20)
    assert (limits(seen["words"].calls), seen["words"].cost) == ((0, 0), None)


PIPELINE = """
pipeline:
  guards: [%s]
  model: {type: chat, preset: openai, model: big, system_prompt: "%s", max_tokens: 100}
  judges:
    - {type: chat, name: strict, preset: openai, model: small, rubric: rubric.txt, max_tokens: 50}
defenses: {guard: {type: allow-all}}
prices: {big: {input_per_1k: 1, output_per_1k: 10}, small: {input_per_1k: 1000, per_call: 1}}
"""


def test_model_and_judge_read_their_prompts_and_the_answers(tmp_path: Path) -> None:
    """System prompt, rubric, exchange and what may be read again are all counted."""
    (tmp_path / "rubric.txt").write_text("r" * 400, encoding="utf-8")
    seen = forecast(tmp_path, PIPELINE % ("none", "s" * 20))
    assert limits(seen["model"].calls) == (4, 4)
    # 4 calls read (20 + 60) / 4 = 20 tokens and write 1 to 100
    assert limits(seen["model"].cost) == span(0.08 + 0.04, 0.08 + 4.0)
    assert limits(seen["strict"].calls) == (4, 8)
    assert len(FRAME) == 65
    told = (400 + 20 + 65 + 60) / 4
    from guardmark.judges.llm import ASK_AGAIN

    again = (told + 100) + 50 + len(ASK_AGAIN) / 4
    least, most = 4 * (told + 1) + 4, 4 * (told + 100 + again) + 8
    assert limits(seen["strict"].cost) == span(least, most)


def test_a_guard_of_answers_reads_conversation_and_answer_at_every_repeat(tmp_path: Path) -> None:
    """2 samples twice and 1 to warm up: 5 calls, each with an answer of 1 to 100 tokens."""
    pipeline = (PIPELINE % ("none", "")).replace("prices: {", f"prices: {{m: {PRICE}, ")
    pipeline = pipeline.replace("{type: chat, preset: openai, model: big", "{type: local, path: x")
    pipeline = pipeline.replace("{guard: {type: allow-all}}", f"{{guard: {GUARD}}}}}")
    (tmp_path / "rubric.txt").write_text("r", encoding="utf-8")
    seen = forecast(tmp_path, pipeline, guard=View.RESPONSE)
    assert limits(seen["model"].calls) == (0, 0)
    assert limits(seen["guard"].calls) == (5, 5)
    # Each reads (40 + 60) / 4 = 25 tokens and the answer, and writes 1 to 16.
    least, most = 5 * (0.5 + 26 / 1000 + 0.01), 5 * (0.5 + 125 / 1000 + 0.16)
    assert limits(seen["guard"].cost) == span(least, most)


def test_behind_a_guard_alone_nothing_may_reach_the_model(tmp_path: Path) -> None:
    """It is asked about what the guard lets through, which nobody knows before."""
    (tmp_path / "rubric.txt").write_text("r", encoding="utf-8")
    seen = forecast(tmp_path, PIPELINE % ("guard", ""))
    assert limits(seen["model"].calls) == (0, 4)
    assert limits(seen["strict"].calls) == (0, 8)


def test_judges_of_a_panel_are_counted_each(tmp_path: Path) -> None:
    """Those in this process cost nothing."""
    member = "{type: chat, preset: vllm, model: m, retries: 0}"
    panel = f"{{type: panel, judges: [{member}, {{type: rules, canaries: true}}, {member}]}}"
    model = "{type: scripted, otherwise: fine}"
    seen = forecast(tmp_path, f"pipeline: {{model: {model}, judges: [{panel}]}}")
    assert limits(seen["judge-1"].calls) == (8, 8)
    assert (limits(seen["model"].calls), seen["judge-1"].cost) == ((0, 0), None)


def test_kept_answers_may_cost_nothing(tmp_path: Path) -> None:
    """With a cache, nobody knows before how much is asked anew."""
    seen = forecast(tmp_path, f"defenses: {{guard: {GUARD}}}}}\nrun: {{cache: true}}")["guard"]
    assert limits(seen.calls) == (0, 3)


def test_check_prints_a_range_and_what_it_assumes(tmp_path: Path) -> None:
    """And says the same as JSON."""
    from click.testing import CliRunner

    from guardmark.cli.commands import build

    rows = [{"id": str(n), "text": p.text, "label": "attack"} for n, p in enumerate(PROMPTS)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config = tmp_path / "bench.yaml"
    config.write_text(
        f"version: 1\ndata: [{{path: d.jsonl}}]\nlatency: {{warmup: 1}}\nrun: {{repeats: 2}}\n"
        f"defenses:\n  guard: {GUARD}}}\n  words: {{type: pattern, keywords: [x]}}\n"
        f"prices: {{m: {PRICE}}}\n",
        encoding="utf-8",
    )
    said = CliRunner().invoke(build(), ["check", str(config)]).output
    assert (
        "guard: 5 calls, time unknown (--probe N measures), at least 2.67 and at most 3.42" in said
    )
    assert "words: in this process, no calls" in said
    assert "Costs assume 4 characters a token, and answers of 1 token up to max_tokens" in said
    parts = json.loads(CliRunner().invoke(build(), ["check", str(config), "--json"]).output)
    assert parts["forecasts"][0]["cost"] == {"at_least": 2.675, "at_most": pytest.approx(3.425)}


def test_workers_on_a_cluster_that_save_nothing_are_told_before_the_run(tmp_path: Path) -> None:
    """A few calls are made here, and what all of them take is held against the start of Ray."""
    path = tmp_path / "bench.yaml"
    words = "{type: pattern, keywords: [ignore]}"
    text = f"version: 1\ndata: [{{builtin: core}}]\ndefenses: {{words: {words}}}\n"
    path.write_text(f"{text}run: {{engine: ray, workers: 2}}\n")
    (told,) = [line for line in check_config(path).warnings if "run.engine" in line]
    assert told.startswith("run.engine ray is not worth it: all calls take about")
    path.write_text(text)
    assert not [line for line in check_config(path).warnings if "run.engine" in line]


async def test_a_probe_shows_a_service_attacks_and_benign_inputs_in_turn(
    serve: Serve, tmp_path: Path
) -> None:
    """What it decided and said of them is told before any sample is paid for."""
    from aiohttp import web

    asked: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        text = (await request.json())["t"]
        asked.append(text)
        return web.json_response({"b": "attack" in text} if "2" not in text else {})

    url = (await serve(respond)).url
    rows = [{"id": f"a{n}", "text": f"attack {n}", "label": "attack"} for n in range(3)]
    rows += [{"id": f"b{n}", "text": f"question {n}", "label": "benign"} for n in range(3)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    path = tmp_path / "bench.yaml"
    guard = f"{{type: http, url: '{url}/x', body: {{t: {{$input: text}}}}, blocked: $.b}}"
    path.write_text(f"version: 1\ndata: [{{path: d.jsonl}}]\ndefenses: {{guard: {guard}}}\n")
    (probe,) = (await asyncio.to_thread(check_config, path, probes=5)).probes
    assert asked == ["attack 0", "question 0", "attack 1", "question 1", "attack 2"]
    assert (probe.defense, probe.outcomes) == ("guard", {"block": 2, "allow": 2, "malformed": 1})
    assert len(probe.messages) == 1
    assert probe.median_ms is not None
    assert probe.median_ms > 0


MASK = (
    "{type: http, url: 'http://127.0.0.1:1/x', body: {text: {$input: text}}, action: $.a, "
    "actions: {ok: allow, masked: rewrite}, rewritten: $.t}"
)
WORDS = "{type: http, url: 'http://127.0.0.1:1/y', body: {text: {$input: text}}, blocked: $.b}"
BEHIND = "{type: http, url: 'http://127.0.0.1:1/z', body: {t: {$input: answer}}, blocked: $.b}"


def test_who_may_rewrite_makes_more_calls_of_what_follows(tmp_path: Path) -> None:
    """Two texts asked twice: 4 answers at least, and 4 more about what the mask may write."""
    seen = forecast(
        tmp_path,
        f"defenses: {{mask: {MASK}, words: {WORDS}, leaks: {BEHIND}}}\n"
        "pipeline:\n"
        "  arms: {bare: {}, one: {input: mask}, both: {input: [mask, words], output: leaks}}\n"
        "  model: {type: chat, base_url: 'http://127.0.0.1:1/v1', model: m}\n"
        "  judges: [{type: chat, base_url: 'http://127.0.0.1:1/v1', model: j}]\n",
    )
    assert limits(seen["model"].calls) == (4, 8)
    assert seen["mask"].calls.at_least == seen["mask"].calls.at_most
    least = seen["words"].calls.at_least
    assert limits(seen["words"].calls) == (least, least + 4)
    assert limits(seen["leaks"].calls) == (0, 8)
