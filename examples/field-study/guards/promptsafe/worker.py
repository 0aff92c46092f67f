"""promptsafe at its defaults, without its log of blocked texts."""

import promptsafe


def check(text):
    result = promptsafe.scan(text, log=False)
    return not result["isSafe"], min(result["score"], 100) / 100
