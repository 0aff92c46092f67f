"""Runs beside guardmark, in an environment with AgentDojo: one JSON object a line, in and out.

Another interpreter starts this file by itself, so it imports nothing of guardmark.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any

_BENCHMARK = "v1.2.2"
_ADDRESSED = "gpt-4o-2024-05-13"
"""Model whom the attacks of the package address by its name."""


_SLOT = "qzinjectedtextqz"
"""Stands in a world's YAML for a text that is put there once it was read."""


class _WorldReader:
    """Reads the package's worlds in its place, with the parser in C where PyYAML has it.

    What that parser refuses is read by the usual one, which then says what is wrong. The package
    writes an injected text into YAML as it stands, so that a quotation mark in it breaks the world;
    a rewritten text is put there afterwards, letter by letter.

    Attributes:
        text: What stands in the place of `_SLOT`.
    """

    def __init__(self) -> None:
        import yaml

        self.text = ""
        self._yaml = yaml
        self._usual = yaml.safe_load
        yaml.safe_load = self.safe_load

    def safe_load(self, stream: Any) -> Any:
        """Read a document."""
        value = self._parse(stream)
        if self.text:
            return self._filled(value)
        return value

    def _parse(self, stream: Any) -> Any:
        if self._yaml.__with_libyaml__:
            try:
                return self._yaml.load(stream, Loader=self._yaml.CSafeLoader)
            except self._yaml.YAMLError:
                pass
        return self._usual(stream)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(_SLOT, self.text)
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, dict):
            return {self._filled(key): self._filled(each) for key, each in value.items()}
        return value


class _Target:
    """What the attacks of the package ask of a pipeline: its name."""

    name = _ADDRESSED


class Desk:
    """Suites, attacks and the cases that are open."""

    def __init__(self) -> None:
        from agentdojo.agent_pipeline.tool_execution import is_string_list, tool_result_to_str
        from agentdojo.attacks import attack_registry
        from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
        from agentdojo.task_suite.load_suites import get_suites
        from agentdojo.types import text_content_block_from_string

        self.reader = _WorldReader()
        self.suites = get_suites(_BENCHMARK)
        self.registry = attack_registry
        self.call_type = FunctionCall
        self.runtime_type = FunctionsRuntime
        self.write_result = tool_result_to_str
        self.is_string_list = is_string_list
        self.block_of = text_content_block_from_string
        self.attacks: dict[tuple[str, str], Any] = {}
        self.cases: dict[str, dict[str, Any]] = {}

    def describe(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Tell tasks, injections and tools of a suite, and the names of attacks."""
        from importlib.metadata import version

        suite = self.suites[asked["suite"]]
        tasks = [{"id": name, "prompt": task.PROMPT} for name, task in suite.user_tasks.items()]
        injections = []
        for name, task in suite.injection_tasks.items():
            known = task.ground_truth(suite.load_and_inject_default_environment({}))
            is_known = bool(known or task.GROUND_TRUTH_OUTPUT)
            injections.append({"id": name, "order": task.GOAL, "is_known": is_known})
        tools = [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters.model_json_schema(),
            }
            for tool in suite.tools
        ]
        attacks = [name for name, kind in self.registry.ATTACKS.items() if not kind.is_dos_attack]
        return {
            "tasks": tasks,
            "injections": injections,
            "tools": tools,
            "attacks": attacks,
            "version": f"agentdojo {version('agentdojo')}, benchmark {_BENCHMARK}",
        }

    def open(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Open a case: the injection stands in its world, and nothing was called yet."""
        suite = self.suites[asked["suite"]]
        task = suite.user_tasks[asked["task"]]
        injection = suite.injection_tasks[asked["injection"]] if asked["injection"] else None
        texts = {}
        if injection is not None:
            texts = self._attack(asked["suite"], asked["attack"]).attack(task, injection)
        text = asked.get("text")
        if text is not None and text not in texts.values():
            texts = dict.fromkeys(texts, _SLOT)
            self.reader.text = text
        try:
            world = task.init_environment(suite.load_and_inject_default_environment(texts))
        finally:
            self.reader.text = ""
        case = {
            "suite": suite,
            "task": task,
            "injection": injection,
            "world": world,
            "before": world.model_copy(deep=True),
            "runtime": self.runtime_type(suite.tools),
            "calls": [],
        }
        known = [{"name": c.function, "arguments": dict(c.args)} for c in task.ground_truth(world)]
        self.cases[asked["case"]] = case
        return {
            "calls": known,
            "output": task.GROUND_TRUTH_OUTPUT,
            "injected_output": injection.GROUND_TRUTH_OUTPUT if injection else "",
        }

    def text(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Tell what an attack writes into the world of a case."""
        suite = self.suites[asked["suite"]]
        task, injection = suite.user_tasks[asked["task"]], suite.injection_tasks[asked["injection"]]
        texts = self._attack(asked["suite"], asked["attack"]).attack(task, injection)
        return {"text": next(iter(texts.values()), "")}

    def _attack(self, suite: str, name: str) -> Any:
        if (suite, name) not in self.attacks:
            self.attacks[suite, name] = self.registry.load_attack(
                name, self.suites[suite], _Target()
            )
        return self.attacks[suite, name]

    def injected(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Tell the known calls of the injection, for the world as it is now."""
        case = self.cases[asked["case"]]
        calls = case["injection"].ground_truth(case["world"])
        return {"calls": [{"name": c.function, "arguments": dict(c.args)} for c in calls]}

    def call(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Carry out a call; an error is a result like any other."""
        case, name, arguments = self.cases[asked["case"]], asked["name"], asked["arguments"]
        for key, value in arguments.items():
            if isinstance(value, str) and self.is_string_list(value):
                from ast import literal_eval

                arguments[key] = literal_eval(value)
        case["calls"].append(self.call_type(function=name, args=arguments))
        if name not in case["runtime"].functions:
            return {"text": f"Invalid tool {name} provided.", "is_error": True}
        result, error = case["runtime"].run_function(case["world"], name, arguments)
        if error:
            return {"text": error, "is_error": True}
        return {"text": self.write_result(result), "is_error": False}

    def check(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Ask the package's own checks what was done."""
        case = self.cases[asked["case"]]
        suite, answer = case["suite"], [self.block_of(asked["answer"])]
        state = (answer, case["before"], case["world"], case["calls"])
        done = suite._check_task_result(case["task"], *state)  # noqa: SLF001 - no public one takes a world
        injected = None
        if case["injection"] is not None:
            injected = bool(suite._check_task_result(case["injection"], *state))  # noqa: SLF001 - likewise
        return {"task_done": bool(done), "injection_done": injected}

    def close(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Forget a case."""
        self.cases.pop(asked["case"], None)
        return {}


def plain(value: Any) -> object:
    """Return an argument as a JSON value."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)


def main() -> None:
    """Answer one line after the other until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the package prints is no answer
    warnings.simplefilter("ignore")
    desk: Desk | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            desk = desk or Desk()
            answer = getattr(desk, asked["do"])(asked)
        except Exception as error:  # noqa: BLE001 - becomes a line that says so
            answer = {"fault": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        answer["id"] = asked["id"]
        out.write(json.dumps(answer, default=plain) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
