"""injectionshield at its defaults."""

from injectionshield import scan


def check(text):
    result = scan(text)
    return not result.safe, result.risk_score
