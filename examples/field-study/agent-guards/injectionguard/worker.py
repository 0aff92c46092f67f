"""injectionguard's scan of what a tool returned, at its defaults."""

from injectionguard import Detector

detector = Detector()


def check(text):
    return not detector.scan_mcp_output("errands", text).is_safe
