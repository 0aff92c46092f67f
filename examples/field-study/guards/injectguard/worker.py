"""injectguard at its defaults."""

from injectguard import scan


def check(text):
    result = scan(text)
    return result.is_injection, result.risk_score
