"""A tiny classifier: logistic regression over a few words, with weights that anybody can read."""

import math

WEIGHTS = {
    "ignore": 2.5,
    "previous": 1.5,
    "instructions": 1.5,
    "system prompt": 2.0,
    "pretend": 1.0,
}


def risk(text: str) -> float:
    """Return how likely a text is an attack."""
    lowered = text.lower()
    logit = sum(weight for words, weight in WEIGHTS.items() if words in lowered) - 2.0
    return 1 / (1 + math.exp(-logit))
