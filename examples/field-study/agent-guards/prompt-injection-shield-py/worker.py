"""prompt-injection-shield-py at its defaults."""

from prompt_injection_shield import scan


def check(text):
    return not scan(text).safe
