"""The decisions of one defense, and rates over some of them, for slow references."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.oracles.slow.defenses.columns import ALONE, read_decisions, side_of
from tests.oracles.slow.formulas.rates import rate_of
from tests.oracles.slow.source import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.oracles.slow.defenses.columns import Samples
    from tests.oracles.slow.formulas.rates import Shapes
    from tests.oracles.slow.source import Source

Json = dict[str, Any]


def is_grouped(samples: Samples, manifest: Json) -> bool:
    """Tell whether samples share groups, or are run more than once."""
    return samples.group_count() < len(samples) or manifest["repeats"] > 1


def _threshold(manifest: Json, defense: str) -> float | None:
    """Return the score from which a defense was to block, where it is known."""
    parts = (part for part in manifest["parts"] if part["kind"] == "defense")
    own: Json = next((part for part in parts if part["name"] == defense), {})
    threshold: float | None = own.get("threshold")
    return threshold


class Recount:
    """One defense's figures; a row is one of its decisions."""

    def __init__(self, source: Source, samples: Samples, defense: str, stated: Json) -> None:
        self.source = source
        self.name = defense
        self.manifest = source.manifest
        self.stats: Json = dict(source.manifest.get("settings", {}).get("stats", {}))
        self.samples = samples
        self.is_grouped = is_grouped(samples, source.manifest)
        self.confidence = float(source.manifest["confidence"])
        self.decisions = read_decisions(source, samples, defense)
        self.outcomes = bytearray(self.decisions.outcomes)
        self.attacks, self.benign = (
            side_of(samples, self.decisions.places, is_attack=label) for label in (True, False)
        )
        self.threshold = _threshold(source.manifest, defense)
        self.is_redecided = bool(stated.get("is_redecided"))
        if self.is_redecided:
            self.threshold = stated["threshold"]
            self._decide_anew(stated["threshold"])

    def _decide_anew(self, threshold: float) -> None:
        allow, block = OUTCOMES.index("allow"), OUTCOMES.index("block")
        for row, score in enumerate(self.decisions.scores):
            if self.outcomes[row] in {allow, block} and not math.isnan(score):
                self.outcomes[row] = block if score >= threshold else allow

    def is_scored(self, row: int) -> bool:
        """Tell whether a decision carries a score."""
        is_decided = OUTCOMES[self.decisions.outcomes[row]] in {"allow", "block"}
        return is_decided and not math.isnan(self.decisions.scores[row])

    def outcome(self, row: int) -> str:
        """Return what a decision came to."""
        return OUTCOMES[self.outcomes[row]]

    def sides(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the rows of attacks, and those of benign samples."""
        return self.attacks, self.benign

    def rows(self) -> Sequence[int]:
        """Return all rows."""
        return range(len(self.decisions))

    def tally(self, rows: Sequence[int]) -> Counter[str]:
        """Count rows by what they came to."""
        counted = Counter(map(self.outcomes.__getitem__, rows))
        return Counter({OUTCOMES[code]: count for code, count in counted.items()})

    def shapes(
        self, rows: Iterable[int], *, hit: Callable[[str], bool], counts: Callable[[str], bool]
    ) -> Shapes:
        """Count groups by their trials and hits."""
        hits, counted = [hit(name) for name in OUTCOMES], [counts(name) for name in OUTCOMES]
        groups, places, outcomes = self.samples.groups, self.decisions.places, self.outcomes
        lone, trials, with_it = [0, 0], Counter[int](), Counter[int]()
        for row in rows:
            outcome = outcomes[row]
            if counted[outcome]:
                group = groups[places[row]]
                if group == ALONE:
                    lone[hits[outcome]] += 1
                else:
                    trials[group] += 1
                    with_it[group] += hits[outcome]
        found: Shapes = Counter((trials[group], with_it[group]) for group in trials)
        found[1, 0] += lone[False]
        found[1, 1] += lone[True]
        return +found

    def share(
        self, rows: Iterable[int], *, hit: Callable[[str], bool], counts: Callable[[str], bool]
    ) -> Json:
        """Estimate a rate over rows."""
        return rate_of(self.shapes(rows, hit=hit, counts=counts), self.confidence)

    def errors(self, *, blocked: set[str], counted: set[str]) -> Json:
        """Estimate both error rates under one reading of outcomes."""
        return {
            "attack_success_rate": self.share(
                self.attacks, hit=lambda o: o not in blocked, counts=counted.__contains__
            ),
            "false_positive_rate": self.share(
                self.benign, hit=blocked.__contains__, counts=counted.__contains__
            ),
        }


def read_recounts(source: Source, samples: Samples, stated: Json) -> dict[str, Recount]:
    """Read the decisions of every defense, in the order of the run."""
    said = {each.get("name"): each for each in stated.get("defenses", [])}
    return {name: Recount(source, samples, name, said.get(name, {})) for name in source.guards()}
