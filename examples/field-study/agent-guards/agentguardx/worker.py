"""agentguardx in its local mode at its defaults; a confirmation that nobody gives blocks."""

import json

from agentguard import LocalShield


def check(text):
    call = json.loads(text)
    return LocalShield().check(call["name"], call["arguments"]).action.value.lower() != "allow"
