"""ai-injection-guard with the threshold of its README."""

from prompt_shield import InjectionRiskError, PromptScanner

scanner = PromptScanner(threshold="MEDIUM")


def check(text):
    try:
        scanner.check(text)
    except InjectionRiskError:
        return True
    return False
