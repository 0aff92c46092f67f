"""`guardmark verify CARD`: what a card alone can show, what its run adds, and who signed it."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.cards.test_card import card_of, home
from tests.journeys.command_line import guardmark

__all__ = ["home"]

KEY_ID = b"01234567"


def rate(card: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a headline figure of a card, to be changed in place."""
    (found,) = (each for each in card["figures"] if each["name"] == name)
    return found  # type: ignore[no-any-return]


def fewer_successes(card: dict[str, Any]) -> None:
    """Count fewer bypasses and leave the share."""
    rate(card, "attack_success_rate")["successes"] -= 5


def narrower(card: dict[str, Any]) -> None:
    """Narrow an interval that follows from its counts."""
    rate(card, "false_positive_rate")["high"] -= 0.01


def better(card: dict[str, Any]) -> None:
    """Say that one may rely on it."""
    card["answer"] = "Rely"


def other_cohort(card: dict[str, Any]) -> None:
    """Claim to be of another cohort."""
    card["cohort"]["key"] = "0" * 12


def more_stopped(card: dict[str, Any]) -> None:
    """Block more attacks than did not get through."""
    stopped = rate(card, "true_positive_rate")
    stopped["successes"] = stopped["trials"]
    stopped["value"] = stopped["high"] = 1.0


def more_samples(card: dict[str, Any]) -> None:
    """Tell of more attacks than the data hold."""
    card["samples"]["attacks"] += 100


def impossible(card: dict[str, Any]) -> None:
    """Count more successes than trials."""
    rate(card, "answered")["successes"] = 10_000


def new_word(card: dict[str, Any]) -> None:
    """Leave out something that no run can leave out."""
    card["gaps"].append("certified")


def better_in_words_of_others(card: dict[str, Any]) -> None:
    """Give a framework other counts as evidence than stand on the card."""
    items = [item for framework in card["crosswalk"] for item in framework["items"]]
    (first, *_) = (item for item in items if item["evidence"])
    figure = first["evidence"][0]["figure"]
    figure["trials"] += 1


CHANGES = [
    *(fewer_successes, narrower, better, other_cohort, better_in_words_of_others),
    *(more_stopped, more_samples, impossible, new_word),
]


def test_an_honest_card_holds_by_itself_and_beside_its_run(home: Path) -> None:
    """Exit code 0; without the run it says what is not shown."""
    path = "run/cards/words.card.json"
    alone = guardmark("verify", path, cwd=home)
    assert alone.code == 0, alone.out
    assert "Not shown: that a run stands behind it" in alone.out
    beside = guardmark("verify", path, "--run", "run", cwd=home)
    assert beside.code == 0, beside.out
    assert "its run makes this card again" in beside.out
    told = json.loads(guardmark("verify", path, "--run", "run", "--json", cwd=home).out)
    assert told["holds"]
    assert told["differences"] == []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_card_that_contradicts_itself_does_not_hold(
    home: Path, tmp_path: Path, change: Any
) -> None:
    """Exit code 1, and the sentence says what cannot be so."""
    card = card_of(home)
    change(card)
    path = tmp_path / "words.card.json"
    path.write_text(json.dumps(card, indent=1), encoding="utf-8")
    done = guardmark("verify", path, cwd=home)
    assert done.code == 1, done.out
    assert done.out.startswith("Differs: ")


def test_a_card_that_agrees_with_itself_and_is_false_needs_its_run(
    home: Path, tmp_path: Path
) -> None:
    """Whole made-up counts pass alone; the run finds each of them."""
    card = card_of(home)
    card["blind_spots"] = []
    card["run"]["created_utc"] = "2020-01-01T00:00:00Z"
    path = tmp_path / "words.card.json"
    path.write_text(json.dumps(card, indent=1), encoding="utf-8")
    assert guardmark("verify", path, cwd=home).code == 0
    beside = guardmark("verify", path, "--run", "run", cwd=home)
    assert beside.code == 1
    assert "blind_spots" in beside.out
    assert "run.created_utc" in beside.out


def secret_key(path: Path, key: Ed25519PrivateKey) -> None:
    """Write a secret key as `minisign -G -W` does: without a password and without a check."""
    seed, public = key.private_bytes_raw(), key.public_key().public_bytes_raw()
    raw = b"Ed" + b"\0\0" + b"B2" + bytes(32) + bytes(16) + KEY_ID + seed + public + bytes(32)
    path.write_bytes(b"untrusted comment: x\n" + b64encode(raw) + b"\n")
    shown = b64encode(b"Ed" + KEY_ID + public)
    path.with_suffix(".pub").write_bytes(b"untrusted comment: x\n" + shown + b"\n")


def test_a_signed_card_names_its_key_and_a_changed_one_is_found(home: Path, tmp_path: Path) -> None:
    """The signature is that of minisign, beside the card."""
    secret_key(tmp_path / "me.key", Ed25519PrivateKey.generate())
    secret_key(tmp_path / "other.key", Ed25519PrivateKey.generate())
    done = guardmark(
        "card", "run", "words", "--sign", tmp_path / "me.key", "-o", tmp_path, cwd=home
    )
    assert done.code == 0, done.err
    card = tmp_path / "words.card.json"
    done = guardmark("verify", card, "--public-key", tmp_path / "me.pub", cwd=home)
    assert done.code == 0, done.out
    assert f"signed with key {KEY_ID[::-1].hex().upper()}" in done.out
    assert guardmark("verify", card, "--public-key", tmp_path / "other.pub", cwd=home).code == 1
    card.write_text(card.read_text("utf-8").replace('"words"', '"Words"'), encoding="utf-8")
    done = guardmark("verify", card, "--public-key", tmp_path / "me.pub", cwd=home)
    assert done.code == 1
    assert "is not what was signed" in done.out


def test_a_key_that_is_none_writes_no_signature(home: Path, tmp_path: Path) -> None:
    """It says which file is no key."""
    (tmp_path / "bad.key").write_text("no key\nat all\n", encoding="utf-8")
    done = guardmark("card", "run", "--sign", tmp_path / "bad.key", "-o", tmp_path, cwd=home)
    assert done.code == 3
    assert "bad.key is not a file of minisign" in done.err
    assert not list(tmp_path.glob("*.minisig"))


def test_a_run_of_another_configuration_is_not_the_run_of_a_card(
    home: Path, tmp_path: Path
) -> None:
    """It is refused rather than compared."""
    config = (home / "bench.yaml").read_text("utf-8").replace("name: cards", "name: others")
    (home / "others.yaml").write_text(config, encoding="utf-8")
    assert guardmark("run", "others.yaml", "-o", tmp_path / "others", cwd=home).code == 0
    done = guardmark("verify", "run/cards/words.card.json", "--run", tmp_path / "others", cwd=home)
    assert done.code == 3
    assert "is not the run of this card" in done.err
