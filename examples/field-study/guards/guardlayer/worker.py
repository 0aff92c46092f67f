"""guardlayer at its defaults: its check of inputs, not its control of tools."""

from guardlayer import GuardLayer

guard = GuardLayer()


def check(text):
    return guard.scan_input(text).is_blocked
