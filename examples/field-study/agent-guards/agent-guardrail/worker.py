"""agent-guardrail with its template moderate; an approval that nobody gives blocks."""

import json
import tempfile

from agent_guardrail import DEFAULT_POLICIES, GuardrailStore, PolicyEngine

store = GuardrailStore(f"{tempfile.mkdtemp()}/guardrail.db")
agent = store.register_agent("errands", framework="langchain")
rules = DEFAULT_POLICIES["moderate"]["rules"]
store.save_policy({"name": "moderate", "agent_id": agent["id"], "rules": rules})
engine = PolicyEngine(store)
TARGETS = ("name", "address", "to", "person", "path", "command")


def check(text):
    call = json.loads(text)
    found = [call["arguments"][key] for key in TARGETS if key in call["arguments"]]
    target = str(found[0]) if found else None
    return engine.evaluate(agent["id"], call["name"], target=target).decision != "allow"
