"""prompt-guardrail at its defaults; its score is the confidence in the label."""

import guardify


def check(text):
    result = guardify.detect(text)
    is_attack = result["label"] == "injection"
    return is_attack, result["score"] if is_attack else 1 - result["score"]
