"""mcp-guardrails with its whole default policy, and the user's address book as its README shows."""

import json

from mcp_guard import evaluate, synthesize_default_policy

policy = synthesize_default_policy()
NAMES = ("paul@friends", "nora@friends", "omar@office", "tess@office", "ines@office")
user = {"user": {"contacts": [f"{name}.example" for name in NAMES]}}


def check(text):
    call = json.loads(text)
    decision = evaluate(policy, tool_name=call["name"], args=call["arguments"], user_context=user)
    return not decision.allowed
