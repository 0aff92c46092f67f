"""better-profanity at its defaults."""

from better_profanity import profanity


def check(text):
    return profanity.contains_profanity(text)
