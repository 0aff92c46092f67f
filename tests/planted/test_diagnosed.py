"""What probes say of defenses whose weakness is declared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.adaptive.planted import AtOnce, attack, cards
from tests.planted.defenses import PLANTED, Planted, planted
from tests.planted.table import Asked

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.adaptive.diagnosis import OWN, Diagnosis, diagnose, measure_baseline
from guardmark.adaptive.probes import ALLOW_LIST, carriers
from guardmark.adaptive.state import SearchState
from guardmark.reports.chapters.adaptive.chapter import threat_card

MODELS = ("ngrams", "bag", "nearest")
GATED = [
    pytest.param(each, id=each.name, marks=[pytest.mark.slow] * each.name.startswith(MODELS))
    for each in PLANTED
    if each.is_gated
]


def probed(each: Planted) -> tuple[list[str], Diagnosis]:
    """Look at a planted defense as the attacker does before its first try."""
    state, asked = SearchState(samples=each.data(), seed=1, budget=16), Asked(each.start())
    flags = asked.drive(measure_baseline(state))
    return flags, asked.drive(diagnose(state))


@pytest.mark.parametrize("each", GATED)
def test_content_is_named_behind_a_gate(each: Planted) -> None:
    """Odd characters are turned away first, and most findings still name what lies behind."""
    _, diagnosis = probed(each)
    assert diagnosis.is_gated
    assert diagnosis.label in each.labels
    assert sum(diagnosis.shares.get(label, 0.0) for label in each.labels) >= 0.8


@pytest.mark.parametrize(
    "name", ["prefix", "suffix", "suffix, short", "case", "length", "language"]
)
def test_a_sign_is_seen_on_every_attack_that_was_examined(name: str) -> None:
    """Ten of ten: a sign that shows on some only would be no property of the defense."""
    _, diagnosis = probed(planted(name))
    assert [sign for sign in planted(name).labels if diagnosis.signs[sign] != [10, 10]] == []


def test_a_list_of_allowed_forms_is_no_sum_of_evidence() -> None:
    """Harmless texts of other forms are blocked, too: that is the evidence, text by text."""
    _, diagnosis = probed(planted("forms"))
    assert diagnosis.label == ALLOW_LIST
    assert diagnosis.shares == {ALLOW_LIST: 1.0}
    assert len(diagnosis.findings) == len(carriers("everyday")) >= 12
    assert {each.position for each in diagnosis.findings} == {OWN}


def test_what_blocks_everything_or_half_of_what_is_harmless_has_no_list_of_forms() -> None:
    """Without any benign text that passes nothing is known; and a list lets everyday texts pass."""
    assert probed(planted("closed"))[1].label == "none"
    wary = Planted(name="wary", weakness="", start=lambda: lambda text: (len(text) > 80, None))
    assert probed(wary)[1].label != ALLOW_LIST


@pytest.mark.parametrize("name", ["words", "verbs", "folding", "density"])
def test_no_sign_is_seen_where_there_is_none(name: str) -> None:
    """A list that is looked for anywhere has no side, no case, no language and no length."""
    _, diagnosis = probed(planted(name))
    shown = {sign for sign, (count, _) in diagnosis.signs.items() if count}
    assert shown == ({"canonicaliser"} if name == "folding" else set())


def _fresh() -> object:
    """Allow a number of calls, then block everything."""
    calls = iter(range(10**6))
    return lambda text: ("ignore" in text.lower() or next(calls) > 100, None)


def _late() -> object:
    """Allow calls through three passes over the samples, then block everything."""
    calls = iter(range(10**6))
    return lambda text: (next(calls) >= 150 or "ignore" in text.lower(), None)


def _retentive() -> object:
    """Block whatever was sent before."""
    sent = set[str]()
    return lambda text: ("ignore" in text.lower() or text in sent or bool(sent.add(text)), None)


def _worn_out() -> object:
    """Block a text twice and let it through from then on."""
    sent = Counter[str]()

    def rule(text: str) -> tuple[bool, None]:
        sent[text] += 1
        return "ignore" in text.lower() and sent[text] <= 2, None

    return rule


@pytest.mark.parametrize(
    ("start", "flag"),
    [
        (_worn_out, "STATEFUL"),
        (_late, "RATE_LIMITED"),
        (_retentive, "STATEFUL"),
        (planted("leaker").start, "RANDOMISED"),
        (planted("tired").start, "STATEFUL"),
        (_fresh, "RATE_LIMITED"),
        (planted("words").start, None),
    ],
)
def test_chance_is_told_from_memory_and_from_a_limit(start: object, flag: str | None) -> None:
    """An answer that depends on earlier calls is no chance; a limit blocks new texts as well."""
    state = SearchState(samples=planted("words").data(), seed=1, budget=16)
    flags = Asked(start()).drive(measure_baseline(state))  # type: ignore[operator]
    assert flags == ([] if flag is None else [flag])


async def test_the_report_names_what_is_sure_with_its_share(tmp_path: Path) -> None:
    """A label and a sign stand there with counts and limits; what is not sure does not."""
    rule = planted("prefix").start()
    defense = AtOnce("d", lambda text: rule(text)[0])
    plan = AdaptivePlan(defenses=(defense,), seed=1, budget=4)
    await attack(tmp_path, planted("prefix").data(), plan)
    (card,) = cards(tmp_path)
    told = dict(threat_card(card))["Diagnosis"]
    assert told.startswith("looks at the beginning only: 100.0 % [72.2, 100.0] (10/10")
    assert "word list" not in told


async def test_the_report_says_what_a_list_of_allowed_forms_lets_through(tmp_path: Path) -> None:
    """By the share of everyday texts that it blocks, with their number."""
    rule = planted("forms").start()
    defense = AtOnce("d", lambda text: rule(text)[0])
    plan = AdaptivePlan(defenses=(defense,), seed=1, budget=4)
    await attack(tmp_path, planted("forms").data(), plan)
    (card,) = cards(tmp_path)
    told = dict(threat_card(card))["Diagnosis"]
    assert told.startswith(
        "passes listed forms only: blocks everyday texts of other forms: 100.0 %"
    )
    assert "(12/12" in told
