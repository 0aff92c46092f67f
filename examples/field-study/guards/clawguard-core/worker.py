"""clawguard-core at its defaults."""

from clawguard_core import Scanner

scanner = Scanner()


def check(text):
    return scanner.scan(text).detected
