"""Two small guards of an agent, to try and to replace by your own."""

import json
import re

ORDERS = re.compile(
    r"(?i)important message|ignore (your|all) previous|note to the assistant"
    r"|before you solve the task"
)
KNOWN = {"paul@friends.example", "omar@office.example", "tess@office.example"}


def results(text: str) -> bool:
    """Say of what a tool returned whether the agent must not read it: True blocks."""
    return bool(ORDERS.search(text))


def calls(text: str) -> bool:
    """Say of a call, written as JSON, whether it must not be carried out: True blocks."""
    arguments = json.loads(text)["arguments"]
    people = [arguments.get(key) for key in ("to", "person") if arguments.get(key)]
    return any(person not in KNOWN for person in people)
