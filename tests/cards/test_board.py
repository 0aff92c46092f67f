"""`guardmark board`: cards side by side, ranked only where they may be compared."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cards.test_card import home
from tests.journeys.command_line import guardmark

from guardmark.analysis.cards.card import Card
from guardmark.analysis.cards.cohort import make_cohort
from guardmark.analysis.cards.figures import of_rate
from guardmark.analysis.cards.ranking import rank_cohort
from guardmark.app.results.boards import read_published, write_board
from guardmark.app.results.cards import card_json, read_card
from guardmark.core.errors import StoreError
from guardmark.stats.rates.proportion import wilson

__all__ = ["home"]


@pytest.fixture(scope="module")
def card(home: Path) -> Card:
    """A card of a run."""
    return read_card(home / "run/cards/words.card.json")


TRIALS = 100


def with_rates(card: Card, name: str, through: int, alarms: int) -> Card:
    """Return a card of another guard, with other counts of a hundred."""
    rates = {
        "attack_success_rate": of_rate("attack_success_rate", wilson(through, TRIALS)),
        "true_positive_rate": of_rate("true_positive_rate", wilson(TRIALS - through, TRIALS)),
        "false_positive_rate": of_rate("false_positive_rate", wilson(alarms, TRIALS)),
    }
    return replace(
        card,
        answer="Not enough alone",
        subject=replace(card.subject, name=name, fingerprint=name),
        figures=tuple(rates.get(each.name, each) for each in card.figures),
        crosswalk=(),
    )


def written(folder: Path, *cards: Card) -> list[Path]:
    """Write cards as files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for at, each in enumerate(cards):
        paths.append(folder / f"{at}-{each.subject.name}.card.json")
        paths[-1].write_text(card_json(each), encoding="utf-8")
    return paths


def test_guards_fall_into_tiers_where_the_data_tell_them_apart(card: Card) -> None:
    """Ninety against ten of a hundred is told apart, fifty against fifty-two is not."""
    guards = [
        with_rates(card, "much", 10, 2),
        with_rates(card, "some", 50, 2),
        with_rates(card, "same", 52, 3),
        with_rates(card, "none", 95, 1),
    ]
    tiers = {
        each.card.subject.name: each.tiers["attack_success_rate"] for each in rank_cohort(guards)
    }
    assert tiers == {"much": 1, "some": 2, "same": 2, "none": 3}
    assert {each.tiers["false_positive_rate"] for each in rank_cohort(guards)} == {1}


@settings(max_examples=40, deadline=None)
@given(counts=st.lists(st.integers(0, 100), min_size=2, max_size=6), data=st.data())
def test_the_order_in_which_cards_come_changes_no_tier(
    card: Card, counts: list[int], data: st.DataObject
) -> None:
    """A law of every ranking; and of equal counts, no guard is above another."""
    guards = [with_rates(card, f"g{at}", count, 5) for at, count in enumerate(counts)]
    mixed = data.draw(st.permutations(guards))
    ranked = rank_cohort(guards)
    assert [(each.card.subject.name, each.tiers) for each in ranked] == [
        (each.card.subject.name, each.tiers) for each in rank_cohort(mixed)
    ]
    by_count: dict[int, set[int | None]] = {}
    for each in ranked:
        count = counts[int(each.card.subject.name[1:])]
        by_count.setdefault(count, set()).add(each.tiers["attack_success_rate"])
    assert all(len(tiers) == 1 for tiers in by_count.values())


def test_a_board_needs_no_server_and_no_script(home: Path, card: Card, tmp_path: Path) -> None:
    """The index names every card, links to its page, and loads nothing."""
    paths = written(tmp_path / "in", with_rates(card, "one", 10, 2), with_rates(card, "two", 90, 2))
    done = guardmark("board", *paths, "-o", tmp_path / "site", cwd=home)
    assert done.code == 0, done.err
    index = (tmp_path / "site/index.html").read_text("utf-8")
    assert "<script" not in index
    assert "src=" not in index
    for name in ("one", "two"):
        (page,) = (tmp_path / "site/cards").glob(f"{name}-*.html")
        assert f'href="cards/{page.name}"' in index
        (kept,) = (tmp_path / "site/cards").glob(f"{name}-*.json")
        assert read_card(kept).subject.name == name


def test_cards_of_other_terms_stand_in_a_table_of_their_own(card: Card, tmp_path: Path) -> None:
    """And the term in which they differ is named."""
    terms = card.cohort
    other = make_cohort(
        data=terms.data,
        labels=terms.labels,
        policy="0" * 16,
        harness=terms.harness,
        scope=terms.scope,
    )
    first, second = with_rates(card, "one", 10, 2), with_rates(card, "two", 90, 2)
    away = replace(with_rates(card, "three", 1, 1), cohort=other)
    board = write_board(written(tmp_path / "in", first, second, away), out=tmp_path / "site")
    assert board.cohorts == (terms.key, other.key)
    index = (tmp_path / "site/index.html").read_text("utf-8")
    assert "Differs from the first cohort in: policy." in index
    tables = index.split("<h2 id=")
    assert not any(">three<" in part and ">one<" in part for part in tables)


def test_two_cards_of_one_guard_that_disagree_are_both_shown_and_said(
    card: Card, tmp_path: Path
) -> None:
    """Neither is chosen; the same card twice is one."""
    first = with_rates(card, "one", 10, 2)
    again = with_rates(card, "one", 60, 2)
    board = write_board(written(tmp_path / "in", first, again, again), out=tmp_path / "site")
    assert len(board.ranked) == 2
    index = (tmp_path / "site/index.html").read_text("utf-8")
    assert index.count("(one of 2 cards of this guard here)") == 2


def test_a_card_that_contradicts_itself_is_left_out_and_named(card: Card, tmp_path: Path) -> None:
    """With the first reason; the others stay."""
    forged = replace(with_rates(card, "forged", 50, 5), answer="Rely")
    board = write_board(
        written(tmp_path / "in", with_rates(card, "one", 10, 2), forged), out=tmp_path / "site"
    )
    assert [each.card.subject.name for each in board.ranked] == ["one"]
    ((path, reason),) = board.left_out
    assert path.name.endswith("forged.card.json")
    assert "not shown to lie below its limit" in reason
    assert "forged.card.json" in (tmp_path / "site/index.html").read_text("utf-8")


def test_the_feed_tells_what_changed_since_the_last_board(card: Card, tmp_path: Path) -> None:
    """New guards, guards measured again; what was told before stays."""
    first, second = with_rates(card, "one", 10, 2), with_rates(card, "two", 90, 2)
    write_board(written(tmp_path / "a", first), out=tmp_path / "site", address="https://x.test/b")
    write_board(
        written(tmp_path / "b", with_rates(card, "one", 20, 2), second),
        out=tmp_path / "site",
        address="https://x.test/b",
    )
    root = ET.fromstring((tmp_path / "site/feed.xml").read_text("utf-8"))  # noqa: S314 - a file of ours
    titles = [item.findtext("title") for item in root.iter("item")]
    assert sorted(titles[:2], key=str) == ["one: measured again", "two: new"]
    assert titles[2:] == ["one: new"]
    links = [item.findtext("link") or "" for item in root.iter("item")]
    assert all(link.startswith("https://x.test/b/cards/") for link in links)
    for link in links:
        assert (tmp_path / "site" / link.removeprefix("https://x.test/b/")).is_file()


def test_equal_cards_make_equal_bytes(card: Card, tmp_path: Path) -> None:
    """A board is built again in CI without a change."""
    paths = written(tmp_path / "in", with_rates(card, "one", 10, 2), with_rates(card, "two", 90, 2))
    made = []
    for name in ("a", "b"):
        write_board(paths, out=tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        made.append([(path.relative_to(tmp_path / name), path.read_bytes()) for path in files])
    assert made[0] == made[1]


def test_a_folder_of_something_else_is_not_written_into(card: Card, tmp_path: Path) -> None:
    """It might be somebody's work."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(StoreError, match="no board wrote"):
        write_board(written(tmp_path / "in", card), out=tmp_path / "site")
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["thesis.txt"]


REGISTRY = [
    {
        "guardrail": "some_guard",
        "category": "content_safety",
        "value": 0.79,
        "source": {"kind": "measured", "url": None, "harness_version": "bench+1"},
        "cohort": {
            "dataset": "moderation",
            "dataset_revision": None,
            "split": "train",
            "label_mapping": "harmful=positive",
            "metric": "f1",
            "metric_impl": None,
            "threshold_policy": "native-valid",
            "harness": "bench+1",
            "aggregation": "dataset",
        },
        "contamination": True,
        "notes": None,
    }
]


def test_what_others_published_is_claimed_and_in_no_table_of_ours(
    card: Card, tmp_path: Path
) -> None:
    """Their cohort, source and contamination stand beside it; a missing value is a dash."""
    (tmp_path / "registry.json").write_text(json.dumps(REGISTRY), encoding="utf-8")
    write_board(
        written(tmp_path / "in", with_rates(card, "one", 10, 2)),
        out=tmp_path / "site",
        claimed=[tmp_path / "registry.json"],
    )
    index = (tmp_path / "site/index.html").read_text("utf-8")
    ours, claimed = index.split('<h2 id="claimed"')
    assert "some_guard" not in ours
    assert "some_guard" in claimed
    assert "harmful=positive" in claimed
    assert "<td>-</td>\n<td>yes</td>" in claimed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": None, "cohort": {"dataset": "d", "metric": "f1"}}, "names no source"),
        ({"value": "high"}, "value"),
        ({"guardrail": None}, "guard"),
        ({"cohort": {"metric": "f1", "harness": "h"}}, "dataset"),
    ],
)
def test_a_published_result_without_its_terms_is_refused(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    """No source, no number: it is not shown."""
    path = tmp_path / "registry.json"
    path.write_text(json.dumps([REGISTRY[0] | change]), encoding="utf-8")
    with pytest.raises(StoreError, match=said):
        read_published(path)


@pytest.mark.slow
def test_five_hundred_cards_make_a_board(card: Card, tmp_path: Path) -> None:
    """Each with its page; the index holds them all."""
    cards = [with_rates(card, f"g{at}", at % 101, at % 7) for at in range(500)]
    board = write_board(written(tmp_path / "in", *cards), out=tmp_path / "site")
    assert len(board.ranked) == 500
    assert len(list((tmp_path / "site/cards").glob("*.html"))) == 500
