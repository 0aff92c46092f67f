"""The Ray cluster that local defenses are asked on: joined, or started on this machine."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from threading import current_thread, main_thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.config.cluster import ClusterSettings

_START_S, _LOAD_S, _TRAVEL_S = 13.0, 3.0, 1e-4  # measured: docs/explanation/scale.md
_OLDEST: Final = (2, 60)
_INSTALL: Final = "Next: pip install 'guardmark[ray]', on every machine of the cluster the same."


def doubts(settings: ClusterSettings, each_s: float, *, calls: int, parts: int) -> Iterator[str]:
    """Say where workers gain nothing, if so many parts take so long together for one sample."""
    workers, start_s = int(settings.workers), _START_S + parts * _LOAD_S
    saved_s = max(0.0, calls * (each_s * (1 - 1 / workers) - parts * _TRAVEL_S))
    if not parts:
        yield "run.engine ray is not worth it: what calls a service is asked from here all the same"
    elif saved_s < start_s:
        yield (
            f"run.engine ray is not worth it: all calls take about {calls * each_s:,.1f} s in one "
            f"process, of which {workers} workers save {saved_s:,.1f} s; Ray takes about "
            f"{start_s:.0f} s to be ready"
        )


class Cluster:
    """The Ray cluster of a run: joined, or started on this machine, when it is first needed."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.workers = int(settings.workers)
        self.notes: list[str] = []  # what deserves a word when the run is over
        self._ray: Any = None
        self._is_ours = False

    def joined(self) -> Any:
        """Return Ray's module, connected; a `ConfigError` says why that cannot be."""
        if self._ray is not None:
            return self._ray
        began, ray = perf_counter(), _imported()
        if not ray.is_initialized():
            before = signal.getsignal(signal.SIGTERM)
            try:
                self._connect(ray)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ConfigError(
                    f"The Ray cluster at {self.settings.address!r} cannot be joined: {error}.\n"
                    "Next: see that it runs there, with the same Ray and Python; or set "
                    "run.address to local."
                ) from error
            finally:
                if current_thread() is main_thread():  # there Ray answers in our place
                    signal.signal(signal.SIGTERM, before)
            self._is_ours = True
        self._ray = ray
        self._require_room(ray.cluster_resources())
        self.notes.append(f"Ray {ray.__version__} was ready after {perf_counter() - began:.1f} s")
        return ray

    def _connect(self, ray: Any) -> None:
        quiet = {"log_to_driver": False, "configure_logging": False}
        address = self.settings.address
        if address != "local":
            try:
                ray.init(address=address, **quiet)
            except ConnectionError:
                if address != "auto":
                    raise
            else:
                return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of a measurement
        ray.init(address="local", include_dashboard=False, object_store_memory=256 << 20, **quiet)

    def _require_room(self, resources: dict[str, float]) -> None:
        cpus, gpus = self.settings.cpus_per_worker, self.settings.gpus_per_worker
        for each, name in ((cpus, "CPU"), (gpus, "GPU")):
            wanted, there = each * self.workers, resources.get(name, 0.0)
            if wanted > there:
                self.close()
                raise ConfigError(
                    f"{self.workers} workers with {each:g} {name} each need {wanted:g}, and the "
                    f"Ray cluster has {there:g}.\nNext: fewer run.workers, a smaller run."
                    f"{name.lower()}s_per_worker, or a larger cluster."
                )

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._ray is not None and self._is_ours:
            self._ray.shutdown()
        self._ray = None


def _imported() -> Any:
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise ConfigError(f"run.engine is ray, and Ray is not installed.\n{_INSTALL}") from error
    version = str(ray.__version__)
    if not _OLDEST <= tuple(map(int, version.split(".")[:2])) < (_OLDEST[0] + 1, 0):
        wanted = ".".join(map(str, _OLDEST))
        raise ConfigError(
            f"run.engine is ray, and Ray {version} is installed; guardmark works with {wanted} "
            f"and later 2.x.\n{_INSTALL}"
        )
    return ray
