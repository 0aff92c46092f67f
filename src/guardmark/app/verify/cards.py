"""Whether a card holds: by itself, beside its run, and by its signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.cards.consistency import contradictions_of
from guardmark.app.minisign import read_signature
from guardmark.app.results.cards import differences_of, read_card, remake_card
from guardmark.app.results.opened_run import open_run
from guardmark.core.errors import StoreError
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.analysis.cards.card import Card

_MARK: Final = b'"guardmark-card"'
_HEAD_BYTES: Final = 256
_MOST_LISTED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CardVerification:
    """What a card was checked for, and what was found.

    Attributes:
        path: The card.
        card: What it says.
        contradictions: What in it cannot be so, a sentence each.
        differences: Places that differ from the card that the run makes; None without a run.
        signer: Name of the key that signed it; empty without a signature.
        fault: What is wrong with the signature, or empty.
    """

    path: Path
    card: Card
    contradictions: tuple[str, ...]
    differences: tuple[str, ...] | None
    signer: str
    fault: str

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the card."""
        return not (self.contradictions or self.differences or self.fault)

    def lines(self) -> tuple[str, ...]:
        """Say what was found, a line each."""
        found = [f"Differs: {each}." for each in self.contradictions]
        if self.fault:
            found.append(f"Differs: the signature: {self.fault}.")
        differences = self.differences or ()
        found += [f"Differs from what its run makes: {each}" for each in differences[:_MOST_LISTED]]
        if len(differences) > _MOST_LISTED:
            found.append(f"... and {len(differences) - _MOST_LISTED} more.")
        if not self.contradictions:
            found.append("Shown: its figures follow from its counts and agree with each other.")
        if self.differences is None:
            found.append(
                "Not shown: that a run stands behind it; to see that, name its run: --run RUN."
            )
        elif not self.differences:
            found.append("Shown: its run makes this card again, figure by figure.")
        if self.signer and not self.fault:
            found.append(f"Shown: signed with key {self.signer}.")
        elif not self.signer:
            found.append("Not shown: who wrote it; to see that, check its signature: --public-key.")
        name = self.card.subject.name
        verdict = "holds as far as it was checked" if self.holds else "does not hold"
        found.append(f"Card of {name} {verdict}; cohort {self.card.cohort.key}.")
        return tuple(found)

    def as_document(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        return {
            "card": str(self.path),
            "subject": self.card.subject.name,
            "cohort": self.card.cohort.key,
            "holds": self.holds,
            "contradictions": list(self.contradictions),
            "differences": None if self.differences is None else list(self.differences),
            "signer": self.signer,
            "fault": self.fault,
        }


def is_card(path: Path) -> bool:
    """Tell whether a path names a card, and not a run."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _MARK in file.read(_HEAD_BYTES)
    except OSError:
        return False


def verify_card(
    path: Path,
    *,
    run: Path | None = None,
    public_key: Path | None = None,
    signature: Path | None = None,
) -> CardVerification:
    """Check a card: by itself, against its run where that is given, and its signature.

    Raises:
        StoreError: The card, the run, the key or the signature cannot be read.
    """
    card = read_card(path)
    signer = fault = ""
    if public_key is not None:
        signed = read_signature(
            path, signature or path.with_name(f"{path.name}.minisig"), public_key=public_key
        )
        signer, fault = signed.key, signed.fault
    return CardVerification(
        path=path,
        card=card,
        contradictions=contradictions_of(card),
        differences=None if run is None else _beside_run(card, run),
        signer=signer,
        fault=fault,
    )


def _beside_run(card: Card, run: Path) -> tuple[str, ...]:
    with open_run(run) as opened:
        manifest = opened.reader.manifest()
    if manifest.config_sha256 != card.run.config_sha256:
        raise StoreError(
            f"{run} is not the run of this card: another configuration was measured.\n"
            f"Next: name the run with the head {card.run.head[:16]}."
        )
    return differences_of(card, remake_card(card, run))
