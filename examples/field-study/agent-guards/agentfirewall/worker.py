"""agentfirewall with its default policy pack; a review that nobody answers blocks."""

import json

from agentfirewall import create_firewall
from agentfirewall.events import EventContext

firewall = create_firewall(audit_sink=None)
MODES = {"read_file": "read", "write_file": "write"}


def check(text):
    call = json.loads(text)
    name, arguments = call["name"], call["arguments"]
    events = [EventContext.tool_call(name, kwargs=arguments, source="errands")]
    if name in MODES:  # as its guarded file tools do
        path = arguments["name" if "name" in arguments else "file_path"]
        events.append(EventContext.file_access(path, mode=MODES[name]))
    return any(firewall.evaluate(each).action.value in ("block", "review") for each in events)
