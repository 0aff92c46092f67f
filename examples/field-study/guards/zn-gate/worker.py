"""zn-gate at its defaults: local rules only."""

from zn_gate import evaluate


def check(text):
    return evaluate(text).verdict == "block"
