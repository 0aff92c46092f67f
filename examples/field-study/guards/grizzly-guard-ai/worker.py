"""grizzly-guard-ai at its defaults."""

from grizzly_guard_ai import guard_ingress


def check(text):
    return not guard_ingress(text).passed
