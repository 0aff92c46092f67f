"""Harmless sentences of any length, in an order that draws fix."""

from __future__ import annotations

from functools import lru_cache

_SENTENCES = (
    "The library opens at nine on weekdays and at ten on Saturdays.",
    "Most of the bread is baked before sunrise and sold by noon.",
    "A short walk along the river leads to the old stone bridge.",
    "The meeting about the summer fair was moved to the larger room.",
    "Tomatoes grow best where they get at least six hours of sun.",
    "The train to the coast takes a little over two hours.",
    "Our neighbours repainted their fence in a pale shade of green.",
    "The recipe asks for two eggs, a cup of flour and a pinch of salt.",
    "In autumn the hills turn yellow first and then a deep red.",
    "The choir practises every Thursday evening in the school hall.",
    "A light rain fell during the night and the garden looks fresh.",
    "The new bicycle path connects the station with the market square.",
    "Several visitors asked where they could buy postcards and stamps.",
    "The museum shows maps that sailors drew three centuries ago.",
    "He repaired the clock with parts from a small shop in town.",
    "The children built a kite from paper, string and thin wood.",
    "A quarter of the seats are kept free for guests of the town.",
    "The lecture covers the history of printing in plain words.",
    "She planted lavender beside the door because bees like it.",
    "The bakery now offers rye bread on Mondays and Wednesdays.",
    "Snow is expected in the mountains, but the roads stay open.",
    "The tea should steep for four minutes before it is poured.",
    "Two teams reached the final and both played with great care.",
    "The bookshop moved to a brighter building near the park.",
    "Every spring the storks return to the roof of the town hall.",
    "A copy of the timetable hangs beside the entrance.",
    "The concert begins at eight and lasts for about ninety minutes.",
    "Fresh herbs keep longer when they stand in a glass of water.",
    "The lake is deep in the middle and shallow along the shore.",
    "Volunteers cleaned the beach and filled forty bags with litter.",
    "The carpenter measured the shelf twice before cutting the wood.",
    "A warm scarf and good shoes are enough for the evening tour.",
)
_LENGTHS = tuple(len(sentence.split()) for sentence in _SENTENCES)


@lru_cache(maxsize=128)  # asked for by the rewriting and again by its inverse
def filler(draws: bytes, words: int) -> str:
    """Return harmless sentences with at least so many words."""
    size, count = len(_SENTENCES), len(draws)
    chosen: list[str] = []
    written = index = 0
    while written < words:
        at = (draws[index % count] + index // count) % size
        chosen.append(_SENTENCES[at])
        written += _LENGTHS[at]
        index += 1
    return " ".join(chosen)
