"""cx-agent-firewall's detector of injections at its defaults."""

from agentaudit import PromptInjectionDetector

detector = PromptInjectionDetector()


def check(text):
    return not detector.scan(text).allowed
