"""nukon-pi-detect at its defaults; SUSPICIOUS is allowed, as in its README."""

from nukon_pi_detect import scan


def check(text):
    result = scan(text)
    return result.decision == "MALICIOUS", result.score
