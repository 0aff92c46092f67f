"""The verb `card`: what a run shows of one defense, to be carried elsewhere."""

from __future__ import annotations

import json
import math
import re
from dataclasses import field, replace
from datetime import UTC, datetime
from datetime import date as Day  # noqa: N812 - a field is called date
from itertools import chain
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from guardmark.analysis.cards.card import SCHEMA, SCHEMA_VERSION, Card, make_card, subjects_of
from guardmark.analysis.cards.claims import CLAIMED, MakerClaim
from guardmark.analysis.run import analyse_run
from guardmark.app.minisign import sign_file
from guardmark.app.parts.loading import load_section
from guardmark.app.results.opened_run import open_run
from guardmark.app.secret_scan import require_no_secret
from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError, StoreError, UnknownName
from guardmark.core.limits import MOST_CARD_BYTES
from guardmark.core.values import dataclass
from guardmark.reports.chapters.card import card_document
from guardmark.reports.document.cells import slug
from guardmark.reports.render.badge import badge_svg
from guardmark.reports.render.html.page import render_html
from guardmark.reports.render.markdown import render_markdown
from guardmark.store.file_errors import errors_of_files
from guardmark.store.seals import note_seals
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.reports.document.blocks import Document

FORMATS: Final = ("json", "html", "markdown", "badge")
"""What a card can be written as."""

_ENDINGS: Final = {
    "json": ".card.json",
    "html": ".card.html",
    "markdown": ".card.md",
    "badge": ".svg",
}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,79}")


class ClaimSettings(Settings):
    """One claim of a maker, as a file of claims states it."""

    figure: str
    value: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    source: Annotated[str, Field(min_length=1, max_length=500)]
    date: Day | None = None
    data: Annotated[str, Field(max_length=500)] = ""

    @model_validator(mode="after")
    def _check(self) -> ClaimSettings:
        if self.figure not in CLAIMED:
            raise ValueError(f"figure: {self.figure!r} is none of {', '.join(CLAIMED)}")
        if not self.figure.startswith("latency") and self.value > 1:
            raise ValueError("value: a share lies from 0 to 1: write 0.98 for 98 %")
        if not self.source.strip():
            raise ValueError("source: a claim needs a source")
        return self


class ClaimsFile(Settings):
    """What makers claim, by the name of the defense."""

    claims: dict[str, list[ClaimSettings]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A secret key of minisign, and its password where it has one."""

    path: Path
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCard:
    """A card, what a terminal shows of it, and the files that were written."""

    card: Card
    document: Document
    files: tuple[Path, ...]


def write_cards(
    run: Path,
    names: Sequence[str] = (),
    *,
    formats: Sequence[str] = ("json", "html"),
    claims: Path | None = None,
    out: Path | None = None,
    again: str = "",
    key: SigningKey | None = None,
    now: datetime | None = None,
) -> tuple[WrittenCard, ...]:
    """Write the cards of a run: of the defenses named, else of each that is no baseline.

    Args:
        run: The folder of the run.
        names: Defenses, or arms of a pipeline.
        formats: Of `FORMATS`.
        claims: A YAML file of what the makers claim.
        out: Folder for the files; `cards` in the folder of the run if not given.
        again: The command that repeats the measurement; that of the run if not given.
        key: Signs each card in JSON, in a file beside it.
        now: The day that a badge carries its age from; today if not given.

    Raises:
        UnknownName: No such defense.
        ConfigError: The file of claims says something that is no claim.
        StoreError: There is no run in the folder.
    """
    for form in formats:
        if form not in FORMATS:
            raise UnknownName("format of a card", form, FORMATS)
    if key is not None and "json" not in formats:
        raise ConfigError("A signature is of a card in JSON.\nNext: name json among the formats.")
    stated = _read_claims(claims)
    with open_run(run) as opened:
        analysis = analyse_run(opened.reader, opened.settings)
        folder = opened.folder
    subjects = subjects_of(analysis)
    known = [each.name for each in subjects]
    for name in (*names, *stated):
        if name not in known:
            raise UnknownName("defense of this run", name, known)
    chosen = list(names) or [each.name for each in subjects if not each.is_baseline] or known
    command = again or f"guardmark run {quote(str(folder.resolved_config))}"
    to = out or folder.path / "cards"
    written = []
    for name in chosen:
        card = make_card(analysis, name, claims=stated.get(name, ()), again=command)
        document = card_document(card)
        files = []
        for form in formats:
            path = to / f"{file_name(name)}{_ENDINGS[form]}"
            text = _rendered(card, document, form, now or datetime.now(UTC))  # noqa: TID251 - the clock's door
            with whole_file(path) as file:
                file.write(text.encode())
            files.append(path)
            if key is not None and form == "json":
                comment = f"guardmark card {file_name(name)} cohort {card.cohort.key}"
                files.append(sign_file(path, key.path, comment=comment, password=key.password))
        written.append(WrittenCard(card=card, document=document, files=tuple(files)))
    require_no_secret(chain.from_iterable(one.files for one in written))
    if to.absolute().is_relative_to(folder.path.absolute()):
        note_seals(folder.path)
    return tuple(written)


def file_name(name: str) -> str:
    """Return what the files of a card are called: the name of the defense where it can be."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    return slug(name)


def _rendered(card: Card, document: Document, form: str, now: datetime) -> str:
    if form == "json":
        return card_json(card)
    if form == "html":
        return render_html(document)
    if form == "markdown":
        return render_markdown(document)
    return badge_svg(card, today=now.date())


def card_json(card: Card) -> str:
    """Write a card as JSON."""
    tree = _adapter().dump_python(card, mode="json")
    return json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def card_schema() -> dict[str, Any]:
    """Return the JSON Schema of a card, made from its types."""
    return _adapter().json_schema(mode="serialization")


def read_card(path: Path) -> Card:
    """Read a card that may come from anywhere.

    Raises:
        StoreError: The file cannot be read, is no card, or is one of a newer guardmark.
    """
    with errors_of_files(path):
        if not path.is_file():
            raise StoreError(f"{path} is no file.\nNext: name a card that `guardmark card` wrote.")
        if path.stat().st_size > MOST_CARD_BYTES:
            raise StoreError(f"{path} is larger than a card can be ({MOST_CARD_BYTES >> 20} MB).")
        content = path.read_bytes()
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON, so no card.") from error
    if not isinstance(tree, dict) or tree.get("schema") != SCHEMA:
        raise StoreError(f"{path} is no card: its `schema` is not {SCHEMA!r}.")
    version = tree.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} is a card of schema {version}, this guardmark reads up to {SCHEMA_VERSION}.\n"
            "Next: read it with the guardmark that wrote it, or a newer one."
        )
    try:
        card = _adapter().validate_json(content, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path} is no card that can be read: {where}: {first['msg']}.") from error
    return card


def _adapter() -> TypeAdapter[Card]:
    return TypeAdapter(Card)


def _read_claims(path: Path | None) -> dict[str, tuple[MakerClaim, ...]]:
    """Read what makers claim, by defense."""
    if path is None:
        return {}
    by_defense = {}
    for name, claims in load_section(path, ClaimsFile, key="guardmark-claims").claims.items():
        by_defense[name] = tuple(map(_maker_claim, claims))
    return by_defense


def _maker_claim(claim: ClaimSettings) -> MakerClaim:
    date = ""
    if claim.date:
        date = claim.date.isoformat()
    return MakerClaim(
        figure=claim.figure, value=claim.value, source=claim.source, date=date, data=claim.data
    )


def remake_card(card: Card, run: Path) -> Card:
    """Make a card again from its run, with the claims and the command that it carries."""
    with open_run(run) as opened:
        analysis = analyse_run(opened.reader, opened.settings)
    made = make_card(analysis, card.subject.name, claims=card.claims, again=card.run.again)
    return replace(made, made_by=card.made_by)


def differences_of(card: Card, made: Card) -> tuple[str, ...]:
    """Name each place in which a card differs from the one that its run makes."""
    one = _adapter().dump_python(card, mode="json")
    other = _adapter().dump_python(made, mode="json")
    return tuple(_differing("", one, other))


def _differing(path: str, one: Any, other: Any) -> list[str]:
    """Return where two documents differ; the last digits of a number may."""
    differing: list[str] = []
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            below = key
            if path:
                below = f"{path}.{key}"
            differing += _differing(below, one.get(key), other.get(key))
        return differing
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (member, its_like) in enumerate(zip(one, other, strict=True)):
            differing += _differing(f"{path}[{at}]", member, its_like)
        return differing
    if isinstance(one, float) and isinstance(other, float):
        if math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-15):
            return []
        return [path]
    if one == other:
        return []
    return [path]
