"""llmsentry-ai's library mode at its defaults, told that the text is the output of a tool."""

from llmsentry.llmsentry.client import guard_messages


def check(text):
    return guard_messages([{"role": "tool", "content": text}]).blocked
