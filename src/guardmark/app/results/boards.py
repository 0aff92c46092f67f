"""The verb `board`: a static site of guard cards, which ranks nothing that cannot be compared."""

from __future__ import annotations

import json
from collections import defaultdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from guardmark.analysis.cards.claims import PublishedCohort, PublishedResult
from guardmark.analysis.cards.cohort import differing_terms
from guardmark.analysis.cards.consistency import contradictions_of
from guardmark.analysis.cards.ranking import rank_cohort
from guardmark.app.parts.loading import load_section
from guardmark.app.results.cards import ClaimsFile, card_json, file_name, read_card
from guardmark.core.errors import StoreError
from guardmark.core.limits import MOST_CARDS, MOST_PUBLISHED_BYTES
from guardmark.core.values import dataclass
from guardmark.reports.chapters.card import card_document
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.render.feed import FeedEntry, feed_xml
from guardmark.reports.render.html.board import BoardEntry, BoardPage, CohortTable, render_board
from guardmark.reports.render.html.page import render_html
from guardmark.store.file_errors import errors_of_files
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.analysis.cards.card import Card
    from guardmark.analysis.cards.ranking import Ranked

_DIGITS: Final = 10
_STATE: Final = "board.json"
_STATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A board that was written.

    Attributes:
        index: Its first page.
        ranked: Cards on it, by cohort, best tier first.
        cohorts: Keys of the cohorts, the one with the most cards first.
        left_out: Cards that contradict themselves, with the first reason.
        notes: What a person should know before publishing it.
    """

    index: Path
    ranked: tuple[Ranked, ...]
    cohorts: tuple[str, ...]
    left_out: tuple[tuple[Path, str], ...]
    notes: tuple[str, ...]


def write_board(
    cards: Sequence[Path],
    *,
    out: Path,
    claimed: Sequence[Path] = (),
    address: str = "",
) -> Board:
    """Write the site of some cards: the index, a page and a JSON file for each, and a feed.

    Args:
        cards: Cards in JSON, or folders that hold some.
        out: Folder of the site. What an earlier board wrote there is kept for its links; the feed
            tells what changed since.
        claimed: Published results of others.
        address: Where the site will stand, for the links of the feed.

    Raises:
        StoreError: A file is no card, or `out` holds something that no board wrote.
    """
    paths = _card_files(cards)
    known: dict[str, Card] = {}
    left_out: list[tuple[Path, str]] = []
    for path in paths:
        card = read_card(path)
        wrong = contradictions_of(card)
        if wrong:
            left_out.append((path, wrong[0]))
        else:
            known.setdefault(_mark(card), card)
    published: list[PublishedResult] = []
    for path in claimed:
        published.extend(read_published(path))
    before = _read_state(out)
    by_cohort: dict[str, list[Card]] = defaultdict(list)
    for card in known.values():
        by_cohort[card.cohort.key].append(card)
    keys = sorted(by_cohort, key=lambda key: (-len(by_cohort[key]), key))
    tables = []
    for key in keys:
        ranked = rank_cohort(by_cohort[key])
        entries = []
        for each in ranked:
            others = _namesakes(each.card, known)
            entries.append(BoardEntry(ranked=each, link=_page(each.card), others=others))
        differs = differing_terms(by_cohort[key][0].cohort, by_cohort[keys[0]][0].cohort)
        tables.append(CohortTable(key=key, ranked=tuple(entries), differs=differs))
    for card in known.values():
        _write(out / _page(card), render_html(card_document(card)))
        _write(out / _page(card, ".json"), card_json(card))
    changes = _changes(known, before)
    feed = feed_xml(changes, title="guardmark board", address=address)
    _write(out / "feed.xml", feed)
    page = BoardPage(
        tables=tuple(tables),
        published=tuple(published),
        left_out=tuple((path.name, reason) for path, reason in left_out),
    )
    _write(out / "index.html", render_board(page))
    _write(out / _STATE, _state(known, changes))
    notes = [f"left out {path}: {reason}" for path, reason in left_out]
    if len(keys) > 1:
        notes.append(f"{len(keys)} cohorts: their figures must not be compared with each other")
    return Board(
        index=out / "index.html",
        ranked=tuple(entry.ranked for table in tables for entry in table.ranked),
        cohorts=tuple(keys),
        left_out=tuple(left_out),
        notes=tuple(notes),
    )


def _card_files(given: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(path.rglob("*.card.json"))
            if not inside:
                raise StoreError(
                    f"{path} holds no card (*.card.json).\n"
                    "Next: write one with `guardmark card RUN`."
                )
            found += inside
        else:
            found.append(path)
    if len(found) > MOST_CARDS:
        raise StoreError(f"{len(found)} cards are more than a board holds ({MOST_CARDS}).")
    return found


def _mark(card: Card) -> str:
    """Return what tells a card from all others: a digest of its JSON."""
    return sha256(card_json(card).encode()).hexdigest()[:_DIGITS]


def _page(card: Card, ending: str = ".html") -> str:
    """Return the address of a card's page, which stays the same as long as the card does."""
    return f"cards/{file_name(card.subject.name)}-{_mark(card)}{ending}"


def _namesakes(card: Card, known: dict[str, Card]) -> int:
    """Count other cards of the same guard in the same cohort."""
    count = 0
    for other in known.values():
        is_same_guard = (
            other.subject.name == card.subject.name
            and other.subject.fingerprint == card.subject.fingerprint
        )
        if other is not card and is_same_guard and other.cohort.key == card.cohort.key:
            count += 1
    return count


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode())


def _read_state(out: Path) -> dict[str, Any]:
    """Read what an earlier board in a folder told; a folder of something else is refused."""
    if not out.exists():
        return {}
    state = out / _STATE
    with errors_of_files(out):
        if not out.is_dir():
            raise StoreError(f"{out} is a file.\nNext: name a folder for the board.")
        if not state.is_file():
            if any(out.iterdir()):
                raise StoreError(
                    f"{out} holds files that no board wrote.\nNext: name a new folder with -o."
                )
            return {}
        if state.stat().st_size > MOST_PUBLISHED_BYTES:
            raise StoreError(f"{state} is larger than the memory of a board can be.")
        content = state.read_bytes()
    try:
        stored = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{state} is not JSON.\nNext: name a new folder with -o.") from error
    is_known = isinstance(stored, dict) and stored.get("version") == _STATE_VERSION
    if is_known and isinstance(stored.get("cards"), dict):
        return dict(stored)
    return {}


def _state(known: dict[str, Card], changes: Sequence[FeedEntry]) -> str:
    """Write what the next board has to know of this one."""
    cards, feed = {}, []
    for mark, card in sorted(known.items()):
        cards[mark] = {
            "name": card.subject.name,
            "cohort": card.cohort.key,
            "answer": card.answer,
            "created_utc": card.run.created_utc,
        }
    for change in changes:
        feed.append(
            {
                "id": change.id,
                "title": change.title,
                "link": change.link,
                "when": change.when,
                "text": change.text,
            }
        )
    state = {"version": _STATE_VERSION, "cards": cards, "feed": feed}
    return json.dumps(state, indent=1, ensure_ascii=False) + "\n"


_MOST_ENTRIES: Final = 200


def _changes(known: dict[str, Card], before: dict[str, Any]) -> tuple[FeedEntry, ...]:
    """Return the feed: what is new or gone since the board before, then what that one told."""
    earlier: dict[str, Any] = before.get("cards", {})
    entries = []
    for mark, card in known.items():
        if mark in earlier:
            continue
        name = plain_line(card.subject.name)
        answers, news = set(), "new"
        for told in earlier.values():
            if told.get("name") == card.subject.name:
                answers.add(str(told.get("answer")))
                news = "measured again"
        text = f"{card.answer or 'Baseline'}; cohort {card.cohort.key}."
        if answers and card.answer not in answers:
            text += f" Before: {plain_line(', '.join(sorted(answers)))}."
        entries.append(
            FeedEntry(
                id=mark,
                title=f"{name}: {news}",
                link=_page(card),
                when=card.run.created_utc,
                text=text,
            )
        )
    entries.sort(key=lambda entry: (entry.when, entry.id), reverse=True)
    kept = before.get("feed")
    if isinstance(kept, list):
        for stored in kept:
            if _is_feed_entry(stored):
                entries.append(FeedEntry(**stored))
    return tuple(entries[:_MOST_ENTRIES])


def _is_feed_entry(stored: object) -> bool:
    if not isinstance(stored, dict) or set(stored) != {"id", "title", "link", "when", "text"}:
        return False
    return all(isinstance(value, str) for value in stored.values())


def read_published(path: Path) -> tuple[PublishedResult, ...]:
    """Read results that others published: a registry of any-guardrail as JSON, or a file of claims.

    Raises:
        StoreError: The file is neither.
        ConfigError: It is a file of claims with a mistake.
    """
    with errors_of_files(path):
        if not path.is_file():
            raise StoreError(f"{path} is no file.\nNext: name a file of published results.")
        if path.stat().st_size > MOST_PUBLISHED_BYTES:
            raise StoreError(f"{path} is larger than {MOST_PUBLISHED_BYTES >> 20} MB.")
        content = path.read_bytes()
    if content.lstrip()[:1] not in {b"[", b"{"}:
        return _claims_of(path)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON.") from error
    rows = tree
    if isinstance(tree, dict):
        rows = tree.get("results", tree)
    if not isinstance(rows, list):
        raise StoreError(
            f"{path} is no list of results.\nNext: write the registry of any-guardrail as JSON: a "
            "list of objects with guardrail, value, source and cohort."
        )
    return tuple(_of_registry(path, at, row) for at, row in enumerate(rows))


def _claims_of(path: Path) -> tuple[PublishedResult, ...]:
    """Read a file of claims as results that others published."""
    results = []
    for name, claims in load_section(path, ClaimsFile, key="guardmark-claims").claims.items():
        for claim in claims:
            result = PublishedResult(
                guard=name,
                value=claim.value,
                source=" ".join(f"{claim.source} {claim.date or ''}".split()),
                cohort=PublishedCohort(dataset=claim.data, metric=claim.figure),
            )
            results.append(result)
    return tuple(results)


def _of_registry(path: Path, at: int, row: Any) -> PublishedResult:
    """Read one result of the registry of any-guardrail, whose missing values are null."""
    if not isinstance(row, dict):
        raise StoreError(f"{path}: result {at + 1} is no object.")
    source: Any = row.get("source") or {}
    if not isinstance(source, dict):
        source = {"url": str(source)}
    cohort = {}
    for name, value in (row.get("cohort") or {}).items():
        if value is not None:
            cohort[name] = value
    where = source.get("url") or source.get("harness_version") or cohort.get("harness")
    if not where:
        raise StoreError(f"{path}: result {at + 1} names no source, so it cannot be shown.")
    tree = {
        "guard": row.get("guardrail") or row.get("guard"),
        "value": row.get("value"),
        "source": str(where),
        "category": row.get("category") or "",
        "is_contaminated": row.get("contamination"),
        "notes": row.get("notes") or "",
        "cohort": cohort,
    }
    try:
        return TypeAdapter(PublishedResult).validate_python(tree, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise StoreError(f"{path}: result {at + 1}: {field}: {first['msg']}.") from error
