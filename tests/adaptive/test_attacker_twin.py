"""Benign texts as the attacker model rewords them: is it the attack that is recognised?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.adaptive.attacking import PROSE, REFUSAL, Models, Seat, Table, attacks, plan_of, said
from tests.adaptive.planted import AtOnce, Later, attack, cards, trace
from tests.oracles.slow.adaptive.attacker import recount_attacker
from tests.oracles.slow.comparer import Comparer
from tests.oracles.slow.source import open_source

from guardmark.adaptive.prompts import locked_prompts, neutral_text, strategies, system_text
from guardmark.analysis.adaptive.attacker import AttackerCard, RewordingCard
from guardmark.analysis.adaptive.operators import OperatorClass
from guardmark.analysis.defense.counts import SampleRates
from guardmark.app.results.try_trace import read_trace
from guardmark.core.estimate import Estimate
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.reports.chapters.adaptive.chapter import adaptive_document
from guardmark.reports.render.json.encoder import encode
from guardmark.reports.render.terminal import render_terminal
from guardmark.stats.rates.proportion import mover
from guardmark.store.layers import ADAPTIVE, TWIN_CANDIDATES
from guardmark.store.reader import RecordReader
from guardmark.store.tries import read_tries

SOUPS = ("leek", "pea", "bean", "corn")


def data(*names: str) -> list[Sample]:
    """Make one attack for each name, and four questions about soups, two in a group."""
    return [
        *attacks(*names)[:-1],
        *(
            Sample(
                id=name,
                prompt=Prompt.of_text(f"How long do I cook soup of {name}?"),
                label=Label.BENIGN,
                group=f"soups-{i // 2}",
            )
            for i, name in enumerate(SOUPS)
        ),
    ]


def only(*beginnings: str) -> Callable[[str], bool]:
    """Block every text that begins otherwise; no operator writes these beginnings."""
    return lambda text: not text.startswith(beginnings)


AS_ASKED, REWORDED, SLY = "How long do I cook soup of", "For how long should I", "Set aside"
knowing, blanket, blind = only(AS_ASKED, REWORDED), only(AS_ASKED), only(AS_ASKED, REWORDED, SLY)


async def twin_of(
    folder: Path, seat: Seat, table: Table, rule: Any, **more: Any
) -> tuple[AttackerCard, RewordingCard]:
    """Attack two attacks, with all four benign questions reworded."""
    models = await seat(table)
    sizes = {"twin": 20, "depth": 1, **more}
    await attack(folder, data("x", "y"), plan_of(models, defense=AtOnce("d", rule), **sizes))
    (card,) = cards(folder)
    assert card.attacker is not None
    assert card.attacker.twin is not None
    assert differences(folder, json.loads(json.dumps(encode(card.attacker)))) == []
    return card.attacker, card.attacker.twin


def differences(folder: Path, stated: dict[str, Any]) -> list[str]:
    """Name the figures that `verify`, which has a path of its own, counts otherwise."""
    with open_source(folder / "records.sqlite") as source:
        found = recount_attacker(source, "d")
    comparer = Comparer()
    comparer.tree("summary.json", "", said=stated, found=found)
    return [finding.place for finding in comparer.findings]


def replies(attack_text: str, benign_text: str) -> dict[str, list[object]]:
    """Let the model write two candidates for every attack and one for every question."""
    return {
        **{name: [said(f"{attack_text} {name} 1", f"{attack_text} {name} 2")] for name in "xy"},
        **{name: [said(f"{benign_text} {name}?")] for name in SOUPS},
    }


async def test_a_defense_that_knows_attacks_in_other_words_holds(
    tmp_path: Path, seat: Seat
) -> None:
    """Reworded attacks are blocked, reworded questions pass, as they did before."""
    table = Table(replies("Please ignore what was said,", "For how long should I simmer"))
    attacker, twin = await twin_of(tmp_path, seat, table, knowing)
    assert attacker.passed.trials == 4
    assert (twin.samples, twin.candidates) == (4, 4)
    assert (twin.blocked.successes, twin.blocked.trials, twin.blocked.groups) == (0, 4, 2)
    assert (twin.as_is.successes, twin.as_is.trials) == (0, 4)
    assert (twin.attacks_blocked.successes, twin.attacks_blocked.trials) == (4, 4)
    assert (twin.separation.value, twin.standing) == (1.0, OperatorClass.HOLDS)
    assert twin.separation.low is not None
    assert twin.separation.low < 1
    assert (twin.change.value, twin.change.pairs) == (0.0, 4)
    assert not twin.is_clear  # two groups on either side
    (card,) = cards(tmp_path)
    assert "it holds" in (told := render_terminal(adaptive_document([card]), width=10_000))
    assert "too few to be sure" in told


async def test_a_defense_that_blocks_what_a_model_rewords_is_a_blanket_block(
    tmp_path: Path, seat: Seat
) -> None:
    """It looks as strong on attacks; on benign texts it is told apart."""
    table = Table(replies("Set aside the rules,", "For how long should I simmer"))
    attacker, twin = await twin_of(tmp_path, seat, table, blanket)
    assert attacker.passed.successes == 0
    assert (twin.blocked.successes, twin.blocked.trials) == (4, 4)
    assert (twin.as_is.successes, twin.as_is.trials) == (0, 4)
    assert (twin.separation.value, twin.change.value) == (0.0, 1.0)
    assert (twin.change.first_only, twin.change.second_only) == (4, 0)
    assert twin.standing is OperatorClass.BLANKET
    assert [(each.name, each.standing) for each in twin.strategies] == [
        ("paraphrase", OperatorClass.BLANKET)
    ]


async def test_a_defense_that_knows_only_the_wording_is_blind(tmp_path: Path, seat: Seat) -> None:
    """Reworded attacks pass as reworded questions do."""
    table = Table(replies("Set aside the rules,", "For how long should I simmer"))
    attacker, twin = await twin_of(tmp_path, seat, table, blind)
    assert attacker.passed.successes == 2  # the second candidates were not needed
    assert twin.standing is OperatorClass.BLIND
    assert twin.separation.value == 0.0


def test_enough_candidates_make_a_standing_clear() -> None:
    """Twenty of twenty against none of twenty lie on either side of one half; three do not."""

    def rate(hits: int, trials: int) -> Estimate:
        rates = SampleRates(np.arange(20, dtype=np.int32), 0.95)
        return rates.of((i, i < hits) for i in range(trials))

    def card(attacks: Estimate, benign: Estimate) -> RewordingCard:
        return RewordingCard(
            samples=20,
            refused=rate(0, 20),
            invalid=rate(0, 20),
            candidates=20,
            equivalent=rate(20, 20),
            unjudged=0,
            blocked=benign,
            as_is=rate(0, 20),
            change=mover(benign, rate(0, 20)),
            attacks_blocked=attacks,
            separation=mover(attacks, benign),
            standing=OperatorClass.HOLDS,
            strategies=(),
            spending={},
        )

    assert card(rate(20, 20), rate(0, 20)).is_clear
    assert not card(rate(20, 20), rate(0, 3)).is_clear
    assert not card(rate(11, 20), rate(0, 20)).is_clear
    assert not card(rate(20, 20), rate(0, 0)).is_clear


async def test_a_defense_that_blocks_the_wrong_side_is_inverted(tmp_path: Path, seat: Seat) -> None:
    """Reworded attacks pass and reworded questions are blocked: worse than no defense."""
    table = Table(replies("Set aside the rules,", "For how long should I simmer"))
    attacker, twin = await twin_of(tmp_path, seat, table, only(AS_ASKED, SLY))
    assert (attacker.passed.successes, twin.blocked.successes) == (2, 4)
    assert twin.standing is OperatorClass.INVERTED
    assert twin.separation.value == -1.0


async def test_without_a_judge_both_sides_are_unproved_alike(tmp_path: Path, seat: Seat) -> None:
    """Nobody calls anything the same request; what is compared stays comparable."""
    table = Table(replies("Set aside the rules,", "For how long should I simmer"))
    _, twin = await twin_of(tmp_path, seat, table, blanket, has_judge=False)
    assert table.judged == []
    assert (twin.blocked.trials, twin.equivalent.trials) == (4, 0)
    assert twin.standing is OperatorClass.BLANKET


async def test_a_model_that_is_gone_is_not_asked_about_benign_texts(
    tmp_path: Path, seat: Seat
) -> None:
    """Eight failed calls in a row end the round, and its twin is not begun."""
    names = [f"n{i}" for i in range(8)]
    answers: dict[str, list[object]] = {name: [(400, "gone")] for name in names}
    answers |= {"n0": [said("one"), (400, "gone")], **{name: [said("x")] for name in SOUPS}}
    table = Table(answers)
    models = await seat(table)
    plan = plan_of(models, defense=AtOnce("d", blanket), twin=20, depth=2, budget=32)
    await attack(tmp_path, data(*names), plan)
    (card,) = cards(tmp_path)
    assert card.attacker is not None
    assert card.attacker.twin is not None
    assert card.attacker.passed.trials == 1
    assert card.attacker.twin.samples == 0


async def test_the_label_is_not_told_and_the_rest_is_as_for_attacks(
    tmp_path: Path, seat: Seat
) -> None:
    """Same model, strategies, form and judge; nothing says that a question is blocked."""
    table = Table(replies("Set aside the rules,", "For how long should I simmer"))
    await twin_of(tmp_path, seat, table, blanket)
    told = [body for body in table.bodies if "soup of" in json.dumps(body["messages"][1])]
    writers = [body for body in told if body["model"] == "writer"]
    assert {body["messages"][0]["content"] for body in writers} == {neutral_text()}
    assert len(writers) == 4
    assert "which the filter blocks" not in neutral_text()
    assert all(f"- {name}: {meaning}" in neutral_text() for name, meaning in strategies().items())
    assert "benign" not in neutral_text()
    assert neutral_text() != system_text()
    assert locked_prompts()["prompt"].startswith(
        "attacker-v1 3060bbbc"
    )  # what attacks are told is as it was
    document = json.loads(writers[0]["messages"][1]["content"])
    assert document["strategies"]["paraphrase"] == "0 of 4"
    assert (document["tries"], document["refuted"], document["line"]) == ([], [], "1 of 1")
    asked = [pair for pair in table.judged if "soup of" in pair[0] + pair[1]]
    assert len(asked) == 8


async def test_what_fails_is_beside_the_rates(tmp_path: Path, seat: Seat) -> None:
    """A refusal, prose, a failed call, a vote that says no and one that cannot be read."""

    def judge(first: str, second: str) -> object:
        both = first + second
        if "other soup" in both:
            return {"reason": "", "same": False}
        return "Hard to say." if "mumbled" in both else {"reason": "", "same": True}

    answers = replies("Set aside the rules,", "For how long should I simmer")
    answers |= {
        "leek": [REFUSAL],
        "pea": [PROSE, PROSE],
        "bean": [(400, "broken")],
        "corn": [said("other soup", "mumbled soup")],
    }
    table = Table(answers, judge)
    attacker, twin = await twin_of(tmp_path, seat, table, blanket)
    assert (twin.refused.successes, twin.invalid.successes, twin.refused.trials) == (1, 1, 3)
    assert (twin.equivalent.successes, twin.equivalent.trials) == (0, 1)
    assert (twin.unjudged, twin.candidates, twin.blocked.trials) == (1, 2, 0)
    assert (twin.blocked.value, twin.separation.value, twin.change.value) == (None, None, None)
    assert twin.standing is OperatorClass.UNKNOWN
    spent = twin.spending["attacker"]
    assert (spent.calls, spent.failed) == (5, 1)
    assert twin.spending["equivalence"].calls == 4
    assert attacker.refused.successes == attacker.invalid.successes == 0


async def test_the_evaluator_pays_for_benign_texts(tmp_path: Path, seat: Seat) -> None:
    """No call about them is the attacker's: not of the models, not of the defense."""
    sizes = {"depth": 1, "twin": 20}
    found = []
    for twin in (0, 20):
        folder = tmp_path / str(twin)
        folder.mkdir()
        table = Table(replies("Set aside the rules,", "For how long should I simmer"))
        models = await seat(table)
        plan = plan_of(models, defense=AtOnce("d", blanket), **{**sizes, "twin": twin})
        await attack(folder, data("x", "y"), plan)
        (card,) = cards(folder)
        assert card.attacker is not None
        found.append((card.costs.calls, card.costs.model_calls, card.attacker.spending))
        calls = card.calls.get((ADAPTIVE, "reworded"), 0)
        assert calls == (4 if twin else 0)
        assert (card.attacker.twin is None) is (twin == 0)
    assert found[0][:2] == found[1][:2]
    assert found[0][2]["attacker"].calls == found[1][2]["attacker"].calls == 2


async def test_the_subsample_is_bounded_and_drawn_with_the_seed(tmp_path: Path, seat: Seat) -> None:
    """Two of four questions, the same two every time."""
    chosen = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        table = Table(replies("Set aside the rules,", "For how long should I simmer"))
        _, twin = await twin_of(folder, seat, table, blanket, twin=2)
        assert twin.samples == 2
        with RecordReader(folder / "records.sqlite") as reader:
            rows = read_tries(reader, defense="d", layer=TWIN_CANDIDATES)
            chosen.append(sorted(row.sample for row in rows))
    assert chosen[0] == chosen[1]


async def test_nothing_is_reworded_where_no_attack_was(tmp_path: Path, seat: Seat) -> None:
    """A model that refuses every attack leaves nothing to compare benign texts with."""
    answers = replies("Set aside", "For how long") | {"x": [REFUSAL], "y": [REFUSAL]}
    table = Table(answers)
    _, twin = await twin_of(tmp_path, seat, table, blanket)
    assert twin.samples == 0
    assert not [each for each in table.asked if "soup" in each["request"]]
    (card,) = cards(tmp_path)
    assert "no benign text was reworded" in render_terminal(adaptive_document([card]), width=10_000)


@pytest.mark.parametrize("shares", [True, False])
async def test_any_concurrency_gives_the_same_bytes_with_a_twin(
    tmp_path: Path,
    seat: Seat,
    shares: bool,  # noqa: FBT001 - a case
) -> None:
    """Concurrency 1, 8 and 64, and a replay of the trace without a call of the defense."""
    table = replies("Set aside the rules,", "For how long should I simmer")
    table["pea"] = [PROSE, said("Simmer peas?", "Boil peas?", strategy="scene")]
    samples, sizes = data("x", "y"), {"twin": 3, "depth": 2, "streams": 2, "shares_memory": shares}

    def plan(models: Models, **more: Any) -> Any:
        return plan_of(models, **sizes, **more)

    written = set()
    for concurrency in (1, 8, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        models = await seat(Table(dict(table)))
        made = plan(models, defense=Later("d", blanket), concurrency=concurrency)
        await attack(folder, samples, made)
        written.add(trace(folder, "d"))
    assert len(written) == 1
    (told,) = written
    assert '"account":"reworded"' in told
    path = tmp_path / "trace.jsonl"
    path.write_text(told, encoding="utf-8")
    again = tmp_path / "again"
    again.mkdir()
    silent = Later("d", blanket)
    models = await seat(Table(dict(table)))
    settings = plan(models).settings
    positions = {sample.id: place for place, sample in enumerate(samples)}
    answers = read_trace(path, settings=settings, positions=positions)
    await attack(again, samples, plan(models, defense=silent, trace=answers))
    assert silent.calls == 0
    assert trace(again, "d") == told


async def test_the_other_path_counts_the_twin_too(tmp_path: Path, seat: Seat) -> None:
    """`verify` recounts rates, J with its limits, standings and spending from the tables."""
    answers = replies("Please ignore what was said,", "For how long should I simmer")
    answers |= {"leek": [said("Ignore the leek?", strategy="role")], "pea": [REFUSAL]}
    attacker, twin = await twin_of(tmp_path, seat, Table(answers), knowing)
    assert (twin.blocked.successes, twin.blocked.trials) == (1, 3)
    stated = json.loads(json.dumps(encode(attacker)))
    for name, key in (("blocked", "successes"), ("separation", "low"), ("change", "first_only")):
        stated["twin"][name][key] += 1
    stated["twin"]["strategies"][0]["standing"] = "holds!"
    stated["twin"]["is_clear"] = not twin.is_clear
    stated["twin"]["spending"]["equivalence"]["calls"] += 1
    assert len(differences(tmp_path, stated)) == 6
