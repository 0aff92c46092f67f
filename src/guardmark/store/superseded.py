"""Errors that are asked about again: their records are kept, out of the way of the new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.record import Stage
from guardmark.store import connect, lookups
from guardmark.store.codes import ERROR_KIND_CODE, OUTCOME_CODE, STAGE_CODE
from guardmark.store.schema import DETAILS_OF_RECORDS, SUPERSEDED

if TYPE_CHECKING:
    from guardmark.store.records import RecordWriter

_ERROR: Final = OUTCOME_CODE["error"]
_SKIPPED: Final = ERROR_KIND_CODE["skipped"]
_KEY: Final = "defense, stage, layer, repeat, sample, batch"
_COLUMNS: Final = f"{_KEY}, outcome, score, score_kind, error_kind, answer_mode, latency_ns, flags"
_FAILED: Final = (
    f"r.outcome = {_ERROR} AND r.error_kind IS NOT {_SKIPPED} AND r.layer IN"  # noqa: S608 - constants of ours
    " (SELECT id FROM layers WHERE name = 'run' OR name LIKE 'run/%') AND r.stage"
)
_STAGES: Final = tuple(STAGE_CODE[stage] for stage in (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE))
# A defense that reads the response had nothing to read where the target model failed.
_AGAIN: Final = (
    f"({_FAILED} IN {_STAGES}) OR (r.outcome = {_ERROR} AND r.error_kind = {_SKIPPED}"  # noqa: S608 - constants of ours
    f" AND r.stage = {STAGE_CODE[Stage.DEFENSE]} AND (r.repeat, r.sample) IN"
    f" (SELECT repeat, sample FROM records r WHERE {_FAILED} = {STAGE_CODE[Stage.MODEL]}))"
)


def count_errors(writer: RecordWriter) -> int:
    """Count the errors of a run that may be asked about again."""
    query = f"SELECT count(*) FROM records r WHERE {_FAILED} IN {_STAGES}"  # noqa: S608 - constants of ours
    with connect.errors_of(writer.path):
        return int(writer.connection.execute(query).fetchone()[0])


def supersede_errors(writer: RecordWriter) -> None:
    """Move the errors of a run out of the way, so that it is incomplete where they were.

    All of them or none, and the run is marked as running with them: killed at any moment, it
    is either the run before or one that the same command continues. The moved records keep the
    number of their batch, so the hash chain still covers them.
    """
    connection = writer.connection
    with connect.errors_of(writer.path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(SUPERSEDED)
            connection.execute(
                f"INSERT INTO superseded ({_COLUMNS}, text, evidence)"  # noqa: S608 - constants of ours
                f" SELECT {', '.join(f'r.{name}' for name in _COLUMNS.split(', '))},"
                f" x.text, x.evidence FROM records r{DETAILS_OF_RECORDS} WHERE {_AGAIN}"
            )
            for table in ("details", "records"):
                connection.execute(
                    f"DELETE FROM {table} WHERE ({_KEY}) IN (SELECT {_KEY} FROM superseded)"  # noqa: S608 - constants of ours
                )
            lookups.put_meta(connection, "state", "running")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
