"""turbocloak at its defaults."""

import turbocloak


def check(text):
    return turbocloak.is_jailbreak(text), turbocloak.injection_score(text)
