"""aegis-tool-firewall's engine, the tools of the suite registered, a new one for each call."""

import json

from aegis.engine import PolicyEngine


def check(text):
    call = json.loads(text)
    engine = PolicyEngine()
    engine.register_tool(call["name"])
    return not engine.evaluate(call["name"], call["arguments"]).is_allowed
