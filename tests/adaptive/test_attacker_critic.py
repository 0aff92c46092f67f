"""A critic of blocked candidates: it chooses what is shown, and never what counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.adaptive.attacking import (
    OPEN,
    PROSE,
    REFUSAL,
    Seat,
    Table,
    attacks,
    card_of,
    closed,
    plan_of,
    said,
)
from tests.adaptive.planted import AtOnce, Later, attack, trace
from tests.oracles.slow.adaptive.attacker import recount_attacker
from tests.oracles.slow.comparer import Comparer
from tests.oracles.slow.source import open_source

from guardmark.adaptive.asker import stored_tries
from guardmark.adaptive.attacker import shown_tries
from guardmark.adaptive.campaign import check_settings
from guardmark.adaptive.prompts import PastTry
from guardmark.app.results.try_trace import read_trace
from guardmark.core.outcome import Decision, Outcome
from guardmark.core.sample import Prompt
from guardmark.engine.supervision import StopSignal
from guardmark.reports.chapters.adaptive.chapter import adaptive_document
from guardmark.reports.render.json.encoder import encode
from guardmark.reports.render.terminal import render_terminal
from guardmark.store.layers import CRITIC
from guardmark.store.reader import RecordReader
from guardmark.store.tries import read_tries

FIGURES = {"far": 2, "near": 9, "mid": 5}


def by_word(text: str) -> object:
    """Guess by a word of the candidate."""
    return {"reason": "", "closeness": FIGURES[text.split(maxsplit=1)[0]]}


def lines_of(table: Table, name: str) -> list[list[tuple[str, object, bool]]]:
    """Return the tries each call about an attack was shown: text, figure, whether it is best."""
    return [
        [(t["text"], t.get("closeness"), t.get("best", False)) for t in each["tries"]]
        for each in table.of(name)
    ]


async def test_the_closest_candidates_are_shown_and_the_best_is_marked(
    tmp_path: Path, seat: Seat
) -> None:
    """With room for two, the farthest falls out, and order is that of age."""
    table = Table({"x": [said("near a", "far a"), said("mid a", "far b"), PROSE]}, critic=by_word)
    await card_of(tmp_path, seat, table, ["x"], has_critic=True, history=2, depth=3, budget=32)
    first, second, third = lines_of(table, "x")
    assert first == []
    assert second == [("near a", 9, True), ("far a", 2, False)]
    assert third == [("near a", 9, True), ("mid a", 5, False)]
    told = [body["messages"][0]["content"] for body in table.bodies if body["model"] == "writer"]
    assert all("`best` marks the one to go on from" in text for text in told)


async def test_a_critic_changes_no_count_of_the_same_candidates(tmp_path: Path, seat: Seat) -> None:
    """Whatever it says, the same texts fall: its figures are in no rate and prove nothing."""
    found = []
    for number, figure in enumerate((1, 10)):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = Table(
            {"x": [said("a", f"{OPEN} b")], "y": [said("c", "d"), said("e", "f")]},
            critic=lambda _text, figure=figure: {"reason": "", "closeness": figure},  # type: ignore[misc]
        )
        card, attacker = await card_of(folder, seat, table, ["x", "y"], has_critic=True)
        found.append((card.rounds, card.battery_full, attacker.attacks, attacker.passed))
    assert found[0] == found[1]
    assert found[0][2].successes == 1


async def test_unreadable_refused_and_failed_answers_are_no_figure_and_counted(
    tmp_path: Path, seat: Seat
) -> None:
    """Prose is asked about once more; nothing of it becomes a 1, and the line goes on."""

    def critic(text: str) -> object:
        return {
            "a": [PROSE, '{"closeness": 7}'],  # mended
            "b": [PROSE, PROSE],
            "c": REFUSAL,
            "d": (400, "broken"),
            "e": {"closeness": 11},
            "f": '```json\n{"closeness": "3"}\n```',
        }[text.split(maxsplit=1)[0]]

    table = Table({"x": [said("a 1", "b 1"), said("c 1", "d 1"), said("e 1", "f 1"), PROSE]})
    table.critic = critic
    card, attacker = await card_of(
        tmp_path, seat, table, ["x"], has_critic=True, depth=4, budget=32
    )
    assert lines_of(table, "x")[-1] == [
        ("a 1", 7, True),
        ("b 1", None, False),
        ("c 1", None, False),
        ("d 1", None, False),
        ("e 1", None, False),
        ("f 1", 3, False),
    ]
    assert attacker.critic is not None
    # Six first calls and three repairs (a, b, e); the failed one is in no rate.
    assert (attacker.critic.guessed.successes, attacker.critic.guessed.trials) == (2, 5)
    assert attacker.critic.refused.successes == 1
    assert attacker.critic.invalid.successes == 2
    assert attacker.critic.repairs == 3
    spent = attacker.spending["critic"]
    assert (spent.calls, spent.failed) == (9, 1)
    assert spent.cost == pytest.approx(8 * 0.1 * 0.02)
    assert attacker.passed.trials == 6
    shown = render_terminal(adaptive_document([card]), width=10_000)
    assert "40.0 %" in shown
    assert "1 of 9 critic calls failed" in shown


async def test_what_a_critic_takes_is_the_attackers_and_stands_apart(
    tmp_path: Path, seat: Seat
) -> None:
    """Calls, tokens and money join what the attacker pays, on an account of their own."""
    table = Table({"x": [said("a", "b"), PROSE]})
    card, attacker = await card_of(
        tmp_path, seat, table, ["x"], has_critic=True, depth=2, max_calls=2
    )
    assert attacker.spending["critic"].calls == 2
    assert attacker.spending["attacker"].calls == 2
    assert card.costs.model_calls.total == 4
    assert card.costs.tokens.total == 4 * 120
    assert "critic" not in {account for _, account in card.calls}
    with RecordReader(tmp_path / "records.sqlite") as reader:
        rows = list(read_tries(reader, defense="d", layer=CRITIC))
    assert [row.subject.details["closeness"] for row in rows] == [5, 5]


async def test_only_lines_that_go_on_are_criticised(tmp_path: Path, seat: Seat) -> None:
    """No figure is bought for the last call of a line, for what came through, or unsent."""
    table = Table({"x": [said("a", f"{OPEN} b")], "y": [said("c", "c"), said("d", "e")]})
    await card_of(tmp_path, seat, table, ["x", "y"], has_critic=True, depth=2)
    assert [each["try"]["text"] for each in table.criticised] == ["c"]


async def test_a_defense_that_tells_its_score_needs_no_critic(tmp_path: Path, seat: Seat) -> None:
    """With access A2 nobody is asked, the attacker model is told nothing of one, and we say so."""

    class Scored(AtOnce):
        def decide(self, prompt: Prompt) -> Decision:
            blocked = self.rule(prompt.text)
            outcome = Outcome.BLOCK if blocked else Outcome.ALLOW
            return Decision(outcome=outcome, score=0.9 if blocked else 0.1)

    table = Table({"x": [said("a", "b"), PROSE]})
    card, attacker = await card_of(
        tmp_path, seat, table, ["x"], has_critic=True, defense=Scored("d", closed)
    )
    assert table.criticised == []
    assert attacker.critic is not None
    assert attacker.critic.guessed.value is None
    assert "was not asked: the defense tells its score (A2)" in render_terminal(
        adaptive_document([card]), width=10_000
    )
    writers = [body for body in table.bodies if body["model"] == "writer"]
    assert not any("`best`" in body["messages"][0]["content"] for body in writers)


async def test_a_critic_that_is_gone_is_left_alone_and_the_round_goes_on(
    tmp_path: Path, seat: Seat
) -> None:
    """After eight failed calls in a row no more is asked of it; the attacker model still is."""
    names = [f"n{i}" for i in range(9)]
    table = Table({name: [said("a", "b"), said("c", f"{OPEN} d")] for name in names})
    table.critic = lambda _text: (400, "gone")
    _, attacker = await card_of(tmp_path, seat, table, names, has_critic=True, depth=4)
    assert attacker.spending["critic"].calls == attacker.spending["critic"].failed == 18
    assert attacker.attacks.successes == 9


async def test_any_concurrency_gives_the_same_bytes_with_a_critic(
    tmp_path: Path, seat: Seat
) -> None:
    """Concurrency 1, 8 and 64; what was interrupted goes on; a trace replays."""
    replies = {
        "p": [said("near a", "far b"), PROSE, said("mid c", "far d"), said(f"{OPEN} e")],
        "q": [said("far a", "mid a"), said("near e", "far f"), REFUSAL],
        "soup": [said("far soup", f"{OPEN} soup")],
    }
    data = attacks("p", "q")
    written = set()
    for concurrency in (1, 8, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        models = await seat(Table(dict(replies), critic=by_word))
        plan = plan_of(
            models,
            defense=Later("d", closed),
            streams=2,
            budget=32,
            has_critic=True,
            concurrency=concurrency,
        )
        await attack(folder, data, plan)
        written.add(trace(folder, "d"))
    assert len(written) == 1
    (told,) = written
    assert '"arm":"adaptive/critic"' in told

    (tmp_path / "trace.jsonl").write_text(told, encoding="utf-8")
    again = tmp_path / "again"
    again.mkdir()
    models = await seat(Table(dict(replies), critic=by_word))
    plan = plan_of(models, streams=2, budget=32, has_critic=True)
    positions = {sample.id: place for place, sample in enumerate(data)}
    answers = read_trace(tmp_path / "trace.jsonl", settings=plan.settings, positions=positions)
    silent = Later("d", closed)
    replayed = plan_of(models, streams=2, budget=32, has_critic=True, defense=silent, trace=answers)
    await attack(again, data, replayed)
    assert silent.calls == 0
    assert trace(again, "d") == told


async def test_stored_figures_are_not_asked_for_again(tmp_path: Path, seat: Seat) -> None:
    """An interrupted round goes on with what the critic said before."""
    from guardmark.adaptive.campaign import run_adaptive
    from guardmark.store.records import RecordWriter

    replies: dict[str, list[object]] = {"x": [said("near a", "far b"), said("mid c", "far d")]}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    data = attacks("x")
    first = await seat(Table(dict(replies), critic=by_word))
    sizes = {"has_critic": True, "depth": 3, "budget": 32}
    await attack(whole, data, plan_of(first, **sizes))  # type: ignore[arg-type]
    stop = StopSignal()

    def stopping(text: str) -> object:
        if text == "mid c":
            stop.set("SIGINT")
        return by_word(text)

    models = await seat(Table(dict(replies), critic=stopping))
    broken = await attack(parts, data, plan_of(models, **sizes), stop=stop)  # type: ignore[arg-type]
    assert broken.is_interrupted
    table = Table(dict(replies), critic=by_word)
    models = await seat(table)
    table.told_so_far["x", "1 of 1"] = 2
    plan = plan_of(models, **sizes)  # type: ignore[arg-type]
    with RecordReader(parts / "records.sqlite") as reader:
        check_settings(plan, reader)
        earlier = stored_tries(reader)
    with RecordWriter(parts / "records.sqlite") as writer:
        await run_adaptive(plan, writer, data, earlier=earlier)
    assert "near a" not in {each["try"]["text"] for each in table.criticised}
    assert trace(parts, "d") == trace(whole, "d")


async def test_the_other_path_counts_a_critic_too(tmp_path: Path, seat: Seat) -> None:
    """`verify` recounts answers and spending from the tables."""
    table = Table({"x": [said("a", "b"), said("c", "d"), PROSE]})
    table.critic = lambda text: REFUSAL if text == "a" else {"closeness": 4}
    _, attacker = await card_of(tmp_path, seat, table, ["x"], has_critic=True, budget=32)
    stated = json.loads(json.dumps(encode(attacker)))
    with open_source(tmp_path / "records.sqlite") as source:
        found = recount_attacker(source, "d")
    comparer = Comparer()
    comparer.tree("summary.json", "", said=stated, found=found)
    assert comparer.findings == []
    stated["critic"]["refused"]["successes"] += 1
    stated["spending"]["critic"]["calls"] += 1
    comparer.tree("summary.json", "", said=stated, found=found)
    assert len(comparer.findings) == 2


async def test_another_critic_is_another_measurement(tmp_path: Path, seat: Seat) -> None:
    """The lock names its prompt by hash, and its model by fingerprint."""
    models = await seat(Table({}))
    with_, without = plan_of(models, has_critic=True), plan_of(models)
    assert dict(with_.lock.attacker)["critic_prompt"].startswith("critic-v1 ")
    assert "critic_prompt" not in dict(without.lock.attacker)
    assert with_.settings["lock"] != without.settings["lock"]


def test_tries_without_a_figure_come_behind_all_others() -> None:
    """Of equal figures the later one is better; without any figure, the last ones are shown."""
    past = [PastTry(text=str(i), outcome="blocked") for i in range(4)]
    assert [each.text for each in shown_tries(past, most=2)] == ["2", "3"]
    past[0] = PastTry(text="0", outcome="blocked", closeness=3)
    past[1] = PastTry(text="1", outcome="blocked", closeness=3)
    shown = shown_tries(past, most=2)
    assert [(each.text, each.is_best) for each in shown] == [("0", False), ("1", True)]
    assert shown_tries(past, most=0) == ()
