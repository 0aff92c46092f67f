"""Settings of a run that say who makes the calls: this process, its workers, a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from guardmark.config.deadline import GrownSettings

WorkerChoice = Literal["inline", "threads", "processes"] | Annotated[int, Field(ge=1)]
CLUSTER_SETTINGS = ("engine", "address", "cpus_per_worker", "gpus_per_worker", "batch")


class ClusterSettings(GrownSettings):
    """Settings of a run that say who makes the calls of defenses without a service."""

    later: ClassVar[tuple[str, ...]] = CLUSTER_SETTINGS
    if TYPE_CHECKING:  # a setting of the run: it stands among the others there
        workers: WorkerChoice = "inline"
    engine: Literal["local", "ray"] = "local"
    address: str = "auto"
    cpus_per_worker: float = Field(1.0, ge=0)
    gpus_per_worker: float = Field(0.0, ge=0)
    batch: int | None = Field(None, ge=1)

    @property
    def cluster(self) -> Self | None:
        """These settings, or None where no cluster is asked."""
        if self.engine != "ray":
            return None
        return self

    @model_validator(mode="after")
    def _counted_on_a_cluster(self) -> ClusterSettings:
        if (self.engine == "ray") != isinstance(self.workers, int):
            raise ValueError("engine: ray and a number of workers go together")
        given = sorted(self.model_fields_set.intersection(CLUSTER_SETTINGS[1:]))
        if given and self.engine != "ray":
            raise ValueError(f"{given[0]} goes with engine: ray")
        return self
