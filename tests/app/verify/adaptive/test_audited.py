"""Both paths agree on audits of many groups, and of a defense that answers at random."""

from __future__ import annotations

import json
import random
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.app.labels.human_labels import BypassLabel, resting_of, store_bypass_labels
from guardmark.app.verify.adaptive.cards import recount_attacks
from guardmark.app.verify.difference import Comparer
from guardmark.app.verify.source import open_source
from guardmark.reports.adaptive.card_json import adaptive_json
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

sys.path.insert(0, str(Path(__file__).parents[3] / "engine"))
from planted import AtOnce, attack, cards, hardened, samples

Json = dict[str, Any]
WORDS = ("yes", "yes", "no", "unsure", "", "yes", "no")


_TABLE = files("guardmark.attacks.operators").joinpath("synonyms.tsv").read_text("utf-8")
_SPOKEN = " ".join((_TABLE, *(sample.prompt.text for sample in samples(60, 12))))
_KNOWN = {word.casefold() for word in re.findall("[A-Za-z]+", _SPOKEN)}


def wordy(text: str) -> bool:
    """Block listed verbs, and whatever is not written in known words: synonyms come through."""
    words = re.findall("[A-Za-z]+", text)
    return hardened(text) or any(word.casefold() not in _KNOWN for word in words)


def moody() -> Any:
    """Return a rule that lets most of what is no more than words through, and a bit of the rest."""
    chance = random.Random(11)
    return lambda text: chance.random() > (0.05 if wordy(text) else 0.8)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two attacked defenses, one of them random; three quarters of their sheets filled in."""
    import asyncio

    folder = tmp_path_factory.mktemp("audited")
    data = samples(60, 12)
    rules = {"steady": wordy, "moody": moody()}
    defenses = tuple(AtOnce(name, rule) for name, rule in rules.items())
    asyncio.run(attack(folder, data, AdaptivePlan(defenses=defenses, seed=7, budget=16)))
    with RecordReader(folder / "records.sqlite") as reader:
        found = resting_of(reader, data)
    labels = [
        BypassLabel(bypass=bypass, same=WORDS[i % len(WORDS)])
        for bypasses in found.values()
        for i, bypass in enumerate(bypasses)
        if i % 4
    ]
    with RecordWriter(folder / "records.sqlite") as writer:
        store_bypass_labels(writer, labels, source=folder / "sheet.csv")
    return folder


def test_both_paths_agree_on_audits(audited: Path) -> None:
    """Shares, rounds and limits, where attacks share groups and passes have to be confirmed."""
    stated: Json = json.loads(json.dumps({"adaptive": adaptive_json(cards(audited, seed=0))}))
    with open_source(audited / "records.sqlite") as source:
        found = {"adaptive": recount_attacks(source, stated)}
    comparer = Comparer()
    comparer.tree("summary.json", "", said=stated, found=found)
    assert [str(each) for each in comparer.findings] == []
    by_name = {each["defense"]: each for each in stated["adaptive"]}
    assert by_name["moody"]["findings"]["flags"]
    steady = by_name["steady"]["audit"]["valid"]
    assert steady["groups"] < steady["trials"]
    for card in by_name.values():
        audit = card["audit"]
        assert audit["drawn"] < audit["resting"] == card["resting"]
        assert audit["rounds"][-1]["full"]["low"] is not None
        assert audit["rounds"][-1]["full"]["value"] < card["rounds"][-1]["full"]["value"]


def test_a_limit_moved_by_a_hundredth_of_its_width_is_found(audited: Path) -> None:
    """The draws are reproduced, not approximated."""
    stated: Json = json.loads(json.dumps({"adaptive": adaptive_json(cards(audited, seed=0))}))
    with open_source(audited / "records.sqlite") as source:
        found = {"adaptive": recount_attacks(source, stated)}
    full = stated["adaptive"][0]["audit"]["rounds"][-1]["full"]
    full["high"] += (full["high"] - full["low"]) / 100
    comparer = Comparer()
    comparer.tree("summary.json", "", said=stated, found=found)
    assert [each.place for each in comparer.findings] == ["adaptive[0].audit.rounds[4].full.high"]
