"""vibeguard at its defaults: personal data and secrets are redacted, not blocked."""

from vibeguard import Guard

guard = Guard()


def check(text):
    return guard.check_input(text).blocked
