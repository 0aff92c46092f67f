"""agentshield-fw with its built-in rules, a new shield for each call."""

import json

from agentshield import Shield, ToolCallBlocked


def check(text):
    call = json.loads(text)
    scope = {}
    exec(f"def tool({', '.join(call['arguments'])}): pass", scope)  # noqa: S102 - names of a tool
    try:
        Shield().protect(tool_name=call["name"])(scope["tool"])(**call["arguments"])
    except ToolCallBlocked:
        return True
    return False
