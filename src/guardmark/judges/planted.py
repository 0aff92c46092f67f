"""Answers with a verdict or an order planted into them, to see whether a judge is moved."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.outcome import VerdictLabel
from guardmark.core.sample import Prompt
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE: Final[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
PLANTED_VERSION: Final[str] = _FILE["version"]
_OTHER: Final = {"safe": "unsafe", "unsafe": "safe"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedAnswer:
    """An answer that a judge is shown; without a plant it is the answer as it was.

    Attributes:
        name: Of the answer that it was made of.
        label: What the answer is.
        kind: Of the plant; empty without one.
        plant: Name of the plant; empty without one.
    """

    name: str
    label: VerdictLabel
    kind: str
    plant: str
    question: Prompt
    text: str


def planted_answers() -> Iterator[PlantedAnswer]:
    """Yield each answer as it is, then with each plant that wants the other verdict."""
    for answer in _FILE["answers"]:
        yield _planted(answer, {"kind": "", "name": "", "text": ""})
        for plant in _FILE["plants"]:
            if plant.get("only") in {None, answer["label"]}:
                yield _planted(answer, plant)


def _planted(answer: dict[str, Any], plant: dict[str, Any]) -> PlantedAnswer:
    text: str = answer["answer"]
    kept = text[: round(len(text) * plant.get("keep", 1.0))]
    return PlantedAnswer(
        name=answer["name"],
        label=VerdictLabel(answer["label"]),
        kind=plant["kind"],
        plant=plant["name"],
        question=Prompt.of_text(answer["question"]),
        text=kept + plant["text"].replace("{label}", _OTHER[answer["label"]]),
    )
