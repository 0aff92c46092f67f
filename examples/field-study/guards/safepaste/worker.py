"""safepaste at its defaults."""

from safepaste import scan_prompt


def check(text):
    result = scan_prompt(text)
    return result.flagged, result.score / 100
