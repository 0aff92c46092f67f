"""Asks one function by lines of JSON, in another environment: the standard library is enough."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
from typing import Any

PLAIN = (bool, int, float, str, type(None))


def load(target: str) -> Any:
    """Import a function, or something with `evaluate`, by `module:name` or `file.py:name`."""
    origin, _, attribute = target.rpartition(":")
    sys.path[0] = os.getcwd()  # noqa: PTH109 - in place of the folder of this file
    loaded: Any
    if origin.endswith(".py"):
        spec: Any = importlib.util.spec_from_file_location("guardmark_target", origin)
        loaded = sys.modules["guardmark_target"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(origin)
    for step in attribute.split("."):
        loaded = getattr(loaded, step)
    if isinstance(loaded, type) and hasattr(loaded, "evaluate"):
        return loaded().evaluate
    return loaded if callable(loaded) else loaded.evaluate


def plain(answer: Any) -> Any:
    """Return what JSON can hold of an answer."""
    if hasattr(answer, "item"):
        return answer.item()  # a NumPy scalar
    if isinstance(answer, PLAIN):
        return answer
    if isinstance(answer, (tuple, list)) and not hasattr(answer, "_fields"):
        return [plain(each) if isinstance(each, PLAIN) else repr(each)[:99] for each in answer]
    if not isinstance(answer, dict):
        names = [name for name in dir(answer) if not name.startswith("_")]
        answer = {name: getattr(answer, name, None) for name in names}
    fields = {}
    for name, value in answer.items():
        scalar = value.item() if hasattr(value, "item") else value
        if is_json(scalar):
            fields[str(name)] = scalar
    return fields


def is_json(value: Any) -> bool:
    """Tell whether a value can be written as it is."""
    if isinstance(value, PLAIN):
        return True
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the function prints goes to stderr
    try:
        function, loop = load(sys.argv[1]), asyncio.new_event_loop()
    except ImportError as error:
        sys.exit(f"{error}. Next: install what is missing for {sys.executable}, or name another")
    for line in sys.stdin.buffer:
        question = json.loads(line)
        try:
            answer = function(question["text"])
            answer = loop.run_until_complete(answer) if inspect.isawaitable(answer) else answer
            answer_line = {"id": question["id"], "answer": plain(answer)}
        except Exception as error:  # noqa: BLE001 - the edge to foreign code, in its own process
            answer_line = {"id": question["id"], "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer_line), file=answers, flush=True)
