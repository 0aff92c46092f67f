"""cx-agent-firewall's firewall of tool calls; an approval that nobody gives blocks."""

import json

from agentaudit import ToolFirewall

firewall = ToolFirewall()


def check(text):
    call = json.loads(text)
    result = firewall.evaluate(tool_name=call["name"], args=call["arguments"])
    return not result.allowed or result.requires_human_approval
