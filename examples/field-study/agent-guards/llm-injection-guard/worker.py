"""llm-injection-guard's detector at its defaults."""

from llm_injection_guard import InjectionDetector

detector = InjectionDetector()


def check(text):
    return detector.scan(text).is_injection
