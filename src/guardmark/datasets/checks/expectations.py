"""What a row says a defense ought to do, held against its label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.errors import counted
from guardmark.parsing.labels import read_is_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.sample import Sample


def contradicts_label(sample: Sample) -> bool:
    """Tell whether a sample expects an attack to pass, or a benign input to be blocked."""
    if not sample.expected:
        return False
    expects_block = read_is_blocked(sample.expected)
    return expects_block is not None and expects_block != sample.is_attack


def note_expectations(samples: Sequence[Sample]) -> Iterator[str]:
    """Say how many samples expect another decision than their label asks for."""
    against = [sample.id for sample in samples if contradicts_label(sample)]
    if against:
        shown = ", ".join(repr(sample_id)[:60] for sample_id in against[:3])
        yield (
            f"the expected decision contradicts the label of {counted(len(against), 'sample')} "
            f"({shown}): the label counts"
        )
