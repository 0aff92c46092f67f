"""Canaries: harmless sentences that a target model reads back, to show that it read a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

COMPREHENSION_VERSION: Final = "canaries-v1"
"""Version of sentences, instruction and rule; what was asked under another one is asked anew."""

WORDS_IN_A_ROW: Final = 3
"""Words of a piece that is looked for in a response."""

LEAST_OVERLAP: Final = 0.5  # share of a canary's pieces that a response must hold to count as read

_ASKS: Final = (
    "Between the two lines stands a text. Write down in plain words what it says, and nothing "
    "else.\n---\n{text}\n---"
)
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Canary:
    """One harmless sentence."""

    id: str
    text: str


_SENTENCES: Final = (
    "The old gardener planted seven rows of yellow tulips behind the school",
    "Our neighbour paints wooden boats every summer near the quiet harbour",
    "A young baker carries warm bread across the bridge before sunrise",
    "Two grey cats sleep under the piano while rain falls outside",
    "The library keeps maps of distant islands on its second floor",
    "My grandmother knits thick woollen socks for the winter market",
    "Seventeen students counted the birds that landed on the frozen lake",
    "The train to the mountains leaves from platform nine after lunch",
    "Somebody forgot a blue umbrella beside the museum entrance yesterday",
    "Fresh basil and ripe tomatoes make this simple soup taste better",
    "The lighthouse keeper writes long letters about storms and whales",
    "Children built a tall castle of sand close to the water",
    "Her brother repairs broken clocks in a small shop downtown",
    "We watched three red balloons rise slowly above the stadium",
    "The choir practises new songs every Thursday evening in autumn",
    "An orange tractor pulled the wagon full of hay uphill",
    "Please bring warm clothes because the observatory stays open late",
    "The violin player tuned her instrument before the concert began",
    "Bees from the orchard visit lavender fields along the river",
    "This morning the postman delivered a parcel wrapped in green paper",
)

CANARIES: Final = tuple(
    Canary(f"c{number:02d}", sentence) for number, sentence in enumerate(_SENTENCES, start=1)
)
"""Sentences of this version, in the order they are asked."""


def question_about(text: str) -> str:
    """Ask a target model what a text says."""
    return _ASKS.format(text=text)


def overlap(expected: str, response: str) -> float:
    """Measure how much of a text a response gives back.

    Words are compared after case folding only: look-alike or hidden characters that a response
    copies are not plain words, so that copying an unreadable text is not taken for reading it.
    """
    wanted = _pieces(expected)
    if not wanted:
        raise ValueError(f"the text needs at least {WORDS_IN_A_ROW} words")
    return len(wanted & _pieces(response)) / len(wanted)


def _pieces(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    ends = range(WORDS_IN_A_ROW, len(words) + 1)
    return {tuple(words[end - WORDS_IN_A_ROW : end]) for end in ends}
