"""agent-cordon at its defaults."""

import agent_cordon


def check(text):
    result = agent_cordon.scan(text)
    return result.is_dangerous, result.risk / 100
