"""Texts that a guard is shown equal, of samples with opposite labels: no guard can tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.sample import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.sample import Sample
    from guardmark.store.records import RecordWriter

_CONVERSATIONS: Final = "SELECT position FROM samples WHERE prompt IS NOT NULL ORDER BY position"


def note_equal_texts(writer: RecordWriter, views: Sequence[str]) -> Iterator[str]:
    """Say which attacks and benign samples look alike to a guard.

    Plain texts need no look: equal ones with opposite labels are refused when data are read.
    """
    positions = [row[0] for row in writer.connection.rows(_CONVERSATIONS)]
    if not positions:
        return
    samples = [writer.sample(position) for position in range(writer.labelled_count)]
    for view in dict.fromkeys(views):
        if view in set(View):
            yield from _of_view(samples, View(view))


def _of_view(samples: Sequence[Sample], view: View) -> Iterator[str]:
    """Say which samples look alike in one view."""
    by_text: dict[str, tuple[list[Sample], list[Sample]]] = {}
    for sample in samples:
        shown = sample.prompt.shown(view, beside_images=True)
        if shown is None:
            continue
        attacks, benign_samples = by_text.setdefault(shown, ([], []))
        if sample.is_attack:
            attacks.append(sample)
        else:
            benign_samples.append(sample)
    pairs, count = [], 0
    for attacks, benign_samples in by_text.values():
        if attacks and benign_samples:
            pairs.append((attacks[0], benign_samples[0]))
            count += len(attacks) + len(benign_samples)
    if not pairs:
        return
    attack, benign = pairs[0]
    yield (
        f"A guard with the view {view.value!r} was shown equal texts with opposite labels: "
        f"{count:,} samples, such as {attack.id} (attack) and {benign.id} (benign). No guard can "
        "decide both rightly; show it more (view: conversation), or mark the message under test."
    )
