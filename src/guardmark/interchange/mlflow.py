"""A run as runs of MLflow: one for the whole, one below it for each defense.

What is sent is a value first, so that a server that is away loses nothing. A run of MLflow carries
the head of the records: sent again, it is found and gone on with, never doubled.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from guardmark.core.errors import ConfigError, ServiceError, needs
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HEAD: Final = "guardmark.head"
"""Tag that holds the head of the records: by it a run is found again."""
SUBJECT: Final = "guardmark.subject"
"""Tag that holds the name of the defense; empty for the whole run."""
UNDEFINED: Final = "guardmark.undefined"
"""Tag that names the figures that are undefined, which MLflow could only hold as a number."""

_PARENT: Final = "mlflow.parentRunId"
_LONGEST_PARAM: Final = 500
_AT_ONCE: Final = 100  # params and metrics of one request; MLflow takes no more params
_CONNECT_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowRun:
    """One run of MLflow.

    Attributes:
        name: What it is called.
        tags: Its tags.
        params: What it was measured with.
        metrics: Figures, limits and counts; what is undefined is none of them.
        artefacts: Files that go with it.
    """

    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    artefacts: tuple[Path, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "name": self.name,
            "tags": dict(self.tags),
            "params": dict(self.params),
            "metrics": dict(self.metrics),
            "artefacts": [path.name for path in self.artefacts],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowExport:
    """What one run of guardmark becomes.

    Attributes:
        experiment: Experiment that the runs go into.
        time_ms: Start of the run, in milliseconds since 1970: the time of its figures.
        whole: The run for the whole.
        parts: A run for each defense or arm.
    """

    experiment: str
    time_ms: int
    whole: MlflowRun
    parts: tuple[MlflowRun, ...]

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "experiment": self.experiment,
            "time_ms": self.time_ms,
            "whole": self.whole.as_document(),
            "parts": [part.as_document() for part in self.parts],
        }


def tracking_address(environment: Mapping[str, str]) -> str:
    """Return where MLflow keeps runs, as its own variable says.

    Raises:
        ConfigError: The variable is not set.
    """
    address = environment.get("MLFLOW_TRACKING_URI", "").strip()
    if not address:
        raise ConfigError(
            "MLFLOW_TRACKING_URI does not say where MLflow keeps its runs, so nothing was sent.\n"
            "Next: set it, for example  MLFLOW_TRACKING_URI=http://127.0.0.1:5000"
        )
    return address


def send_runs(export: MlflowExport, address: str) -> tuple[str, ...]:
    """Send runs to MLflow, those that are not there yet; return the ids of all of them.

    Raises:
        ConfigError: mlflow-skinny is not installed.
        ServiceError: MLflow did not answer, or refused something. What had been sent stays marked
            as unfinished there, and is gone on with when the export is repeated.
    """
    _require_answer(address)
    # MLflow reports its use to its makers unless it is told not to; a measurement tells nobody.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with needs("Exporting to MLflow needs mlflow-skinny", "mlflow"):
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    try:
        client = MlflowClient(tracking_uri=address)
        known = client.get_experiment_by_name(export.experiment)
        experiment = known.experiment_id if known else client.create_experiment(export.experiment)
        whole = _send(client, experiment, export.whole, time_ms=export.time_ms, parent="")
        parts = [
            _send(client, experiment, part, time_ms=export.time_ms, parent=whole)
            for part in export.parts
        ]
        client.set_terminated(whole, "FINISHED", end_time=export.time_ms)
    except (MlflowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300].rstrip(".")
        raise ServiceError(
            f"MLflow at {_shown(address)} did not take the run: {reason}.\n"
            "Nothing is lost: the run is as it was, and what had been sent is marked there as "
            "unfinished.\nNext: repeat the export; it goes on with it."
        ) from error
    return (whole, *parts)


def _send(client: Any, experiment: str, run: MlflowRun, *, time_ms: int, parent: str) -> str:
    """Send one run, or find it where it was sent before; a run for the whole is left open."""
    from mlflow.entities import Metric, Param, RunTag

    found = _sent_before(client, experiment, run)
    if found is not None and found.info.status == "FINISHED":
        return str(found.info.run_id)
    tags = {**run.tags, "mlflow.runName": run.name}
    if parent:
        tags[_PARENT] = parent
    if found is None:
        found = client.create_run(experiment, start_time=time_ms, tags=tags, run_name=run.name)
    identity = str(found.info.run_id)
    params = [Param(name, value[:_LONGEST_PARAM]) for name, value in run.params.items()]
    metrics = [Metric(name, value, time_ms, 0) for name, value in run.metrics.items()]
    labels = [RunTag(name, value) for name, value in tags.items()]
    for part in _in_parts(params):
        client.log_batch(identity, params=part)
    for part in _in_parts(metrics):
        client.log_batch(identity, metrics=part)
    client.log_batch(identity, tags=labels)
    for path in run.artefacts:
        client.log_artifact(identity, str(path))
    if parent:
        client.set_terminated(identity, "FINISHED", end_time=time_ms)
    return identity


def _sent_before(client: Any, experiment: str, run: MlflowRun) -> Any | None:
    """Find a run of the same records and the same defense."""
    wanted = f"tags.`{HEAD}` = '{run.tags[HEAD]}'"
    for known in client.search_runs([experiment], filter_string=wanted, max_results=1_000):
        if known.data.tags.get(SUBJECT, "") == run.tags[SUBJECT]:
            return known
    return None


def _in_parts(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE)]


def _require_answer(address: str) -> None:
    """Refuse a server that is away at once: MLflow itself would try for minutes."""
    parts = urlsplit(address)
    if parts.scheme not in _PORTS:
        return
    port = parts.port or _PORTS[parts.scheme]
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S):
            return
    except OSError as error:
        raise ServiceError(
            f"MLflow at {_shown(address)} does not answer: {error.strerror or error}.\n"
            "Nothing is lost: the run is as it was, and nothing of it was sent.\n"
            "Next: start the server, or correct MLFLOW_TRACKING_URI; then repeat the export."
        ) from error


def _shown(address: str) -> str:
    """Return an address without the password that may stand in it."""
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address
    return address.replace(parts.netloc, parts.netloc.rpartition("@")[2])
