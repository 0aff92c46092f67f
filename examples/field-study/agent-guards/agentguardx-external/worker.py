"""agentguardx in its local mode, told that the data are external, as its README does for mail."""

import json

from agentguard import LocalShield


def check(text):
    call = json.loads(text)
    shield = LocalShield()
    shield.set_trust("EXTERNAL")
    return shield.check(call["name"], call["arguments"]).action.value.lower() != "allow"
