"""agentguard-lib's rule against injections, as its README starts."""

from agentguard import Guard, Rules

guard = Guard(rules=[Rules.no_prompt_injection()])


def check(text):
    return not guard.check_input(text).passed
