"""mcp-guardrails with its whole default policy; nothing is known of the user."""

import json

from mcp_guard import evaluate, synthesize_default_policy

policy = synthesize_default_policy()


def check(text):
    call = json.loads(text)
    decision = evaluate(policy, tool_name=call["name"], args=call["arguments"], user_context={})
    return not decision.allowed
