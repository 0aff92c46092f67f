"""guardrail-lite at its defaults: personal data counts as unsafe too."""

from guardrail import GuardRail

guard = GuardRail()


def check(text):
    return not guard.scan(text).is_safe
