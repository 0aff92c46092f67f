"""Which cards may be compared: those that were measured on the same terms."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from guardmark.core.manifest import RunManifest

TERMS: Final = ("data", "labels", "policy", "harness", "scope")
"""The terms of a measurement, in the order in which a difference is told."""

_DIGITS: Final = 16
_KEY_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """The terms on which a card was measured, each as a digest.

    Two cards may stand in one table where all terms are equal.

    Attributes:
        key: Digest of all terms, 12 hexadecimal digits.
        data: Digest of the data sets: name, version, hash and counts of each.
        labels: Digest of which field of the data was read as what.
        policy: Digest of what happened to malformed answers and errors, and of the repeats.
        harness: Version of guardmark, and the confidence of the intervals.
        scope: `defense` (was the text blocked) or `system` (did harm come out), with the target
            model and the judges where a system was measured.
    """

    key: str
    data: str
    labels: str
    policy: str
    harness: str
    scope: str


def cohort_of(manifest: RunManifest, *, scope: str) -> Cohort:
    """Return the terms on which a run was measured at a scope."""
    sets, labels, around = [], [], []
    for data in manifest.data:
        sets.append([data.name, data.version, data.sha256, data.attacks, data.benign])
        labels.append([data.name, sorted(data.mapping.items())])
    policy = [str(manifest.on_malformed), str(manifest.on_error), manifest.repeats]
    for part in manifest.parts:
        if scope != "defense" and part.kind in {"model", "judge"}:
            around.append([part.kind, part.name, part.fingerprint])
    if around:
        scope = f"{scope} {_digest(around)}"
    return make_cohort(
        data=_digest([manifest.data_sha256, sets]),
        labels=_digest(labels),
        policy=_digest(policy),
        harness=f"guardmark {manifest.guardmark_version}, {manifest.confidence:g}",
        scope=scope,
    )


def make_cohort(*, data: str, labels: str, policy: str, harness: str, scope: str) -> Cohort:
    """Put terms together under the key that follows from them."""
    key = _digest([data, labels, policy, harness, scope])[:_KEY_DIGITS]
    return Cohort(key=key, data=data, labels=labels, policy=policy, harness=harness, scope=scope)


def differing_terms(one: Cohort, other: Cohort) -> tuple[str, ...]:
    """Name the terms in which two cohorts differ."""
    return tuple(term for term in TERMS if getattr(one, term) != getattr(other, term))


def _digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:_DIGITS]
