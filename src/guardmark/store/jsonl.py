"""Lines of `results.jsonl`, put together from parts that many lines share."""

from __future__ import annotations

import json
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.record import Stage
from guardmark.store.codes import (
    ANSWER_MODES,
    ERROR_KINDS,
    OUTCOME_NAMES,
    SCORE_KINDS,
    STAGE_CODE,
    STAGES,
)
from guardmark.store.samples import kinds_of
from guardmark.store.sayings import sayings_of
from guardmark.store.schema import DETAILS_OF_RECORDS, FACET_COLUMNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from guardmark.store.samples import Kind

_LANES: Final = (
    "SELECT DISTINCT r.defense, r.stage, r.layer, r.repeat, d.name, l.name FROM records r"
    " JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    " WHERE r.stage <> ? ORDER BY 1, 2, 3, 4"
)
_LEAN: Final = (
    "SELECT r.sample, s.id, s.digest, s.origin, r.score, r.latency_ns, s.kind,"
    # Small numbers travel in one, a byte each: a value handed over costs more than a shift.
    " r.outcome | (r.score_kind << 8) | ((ifnull(r.error_kind, -1) + 1) << 16)"
    " | ((ifnull(r.answer_mode, -1) + 1) << 24) | (r.flags << 32), r.said"
)
_FROM: Final = (
    " FROM records r JOIN samples s ON s.position = r.sample{join}"
    " WHERE r.defense = ? AND r.stage = ? AND r.layer = ? AND r.repeat = ? ORDER BY r.sample"
)


def lines_of(connection: sqlite3.Connection, size: int) -> Iterator[list[str]]:
    """Yield lines, each a JSON object in ASCII with its line end.

    Tries of an adaptive attacker are left out: they are about texts that the data do not hold.
    """
    of_kind = {number: _kind_part(kind) for number, kind in kinds_of(connection).items()}
    sayings = sayings_of(connection)
    for *key, defense, layer in connection.execute(_LANES, (STAGE_CODE[Stage.TRY],)).fetchall():
        head = json.dumps(
            {"defense": defense, "stage": STAGES[key[1]], "layer": layer, "repeat": key[3]},
            separators=(",", ":"),
        )
        has_details = connection.execute(
            "SELECT 1 FROM details WHERE defense = ? AND stage = ? AND layer = ? AND repeat = ?"
            " LIMIT 1",
            key,
        ).fetchone()
        more, join = (", x.text, x.evidence", DETAILS_OF_RECORDS)
        if not has_details:
            more, join = (", NULL, NULL", "")
        cursor = connection.execute(f"{_LEAN}{more}{_FROM.format(join=join)}", key)
        while rows := cursor.fetchmany(size):
            yield _lines(rows, head[:-1], of_kind, sayings)


def _lines(
    rows: Sequence[tuple[Any, ...]], head: str, of_kind: dict[int, str], sayings: dict[int, str]
) -> list[str]:
    quote, lines = encode_basestring_ascii, list[str]()
    for row in rows:
        position, name, digest, origin, score, latency, kind, codes, said, text, evidence = row
        sample_id = quote(name)
        lines.append(
            f'{head},"position":{position},"id":{sample_id},"sha256":"{digest.hex()}",'
            f'{of_kind[kind]},"group":{sample_id if origin is None else quote(origin)},'
            f'"score":{"null" if score is None else repr(score)},'
            f'"latency_ns":{"null" if latency is None else latency},{_said_part(codes)},'
            f'"text":{"null" if text is None else quote(text)},'
            f'"evidence":{evidence or sayings.get(said, "null")}}}\n'
        )
    return lines


def _kind_part(kind: Kind) -> str:
    said = {"label": "attack" if kind[0] else "benign"}
    said.update(zip(FACET_COLUMNS, kind[1:], strict=True))
    return json.dumps(said, separators=(",", ":"))[1:-1]


@cache
def _said_part(codes: int) -> str:
    outcome, score_kind, error_kind, answer_mode = codes.to_bytes(8, "little")[:4]
    said = {
        "outcome": OUTCOME_NAMES[outcome],
        "score_kind": SCORE_KINDS[score_kind],
        "error_kind": ERROR_KINDS[error_kind - 1] if error_kind else None,
        "answer_mode": ANSWER_MODES[answer_mode - 1] if answer_mode else None,
        "flags": codes >> 32,
    }
    return json.dumps(said, separators=(",", ":"))[1:-1]
