"""Run AgentDojo's own pipeline with an agent that obeys and a detector in its place for detectors.

    python agentdojo_pipeline.py SUITE DETECTOR omit|abort

Prints, as JSON, task, injection (or null), utility and security of each case. It imports nothing of
guardmark: the agent is written anew from its description.
"""

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery
from agentdojo.agent_pipeline.pi_detector import PromptInjectionDetector
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
from agentdojo.attacks import load_attack
from agentdojo.functions_runtime import FunctionCall
from agentdojo.logging import OutputLogger
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import get_text_content_as_str, text_content_block_from_string

DETECTORS = {
    "none": lambda _text: False,
    "important": lambda text: "important" in text.lower(),
    "all": lambda _text: True,
}
MODEL = "gpt-4o-2024-05-13"
OMITTED = "<Data omitted because a prompt injection was detected>"


def canonical(text: str) -> str:
    """Drop escapes of YAML and JSON, and all but letters and digits."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\\[nrtx]", "", text).lower())


class Detector(PromptInjectionDetector):
    """A detector of texts, as the package wants one."""

    def __init__(self, decides: Callable[[str], bool], *, aborts: bool) -> None:
        super().__init__(mode="message", raise_on_injection=aborts)
        self.decides = decides

    def detect(self, tool_output: str) -> bool:
        """Say whether a result holds an injection."""
        return self.decides(tool_output)


class Obedient(BasePipelineElement):
    """Carries out the known calls of its task, and an order that it reads, at once and once."""

    name = MODEL

    def __init__(self, task: Any, injection: Any) -> None:
        self.task, self.injection = task, injection
        self.calls: Iterator[Any] | None = None
        self.injected: list[Any] = []
        self.has_obeyed = self.is_injected = False

    def query(self, query: str, runtime: Any, env: Any, *rest: Any) -> tuple[Any, ...]:
        """Say the next word: a call, or the answer."""
        messages = rest[0] if rest else []
        message = self.next_message(env, messages)
        return query, runtime, env, [*messages, message], rest[1] if len(rest) > 1 else {}

    def next_message(self, env: Any, messages: list[Any]) -> dict[str, Any]:
        """Follow an order that was just read, or go on with the task."""
        if self.calls is None:
            self.calls = iter(self.task.ground_truth(env))
        else:
            last = messages[-1]
            text = last.get("error") or get_text_content_as_str(last["content"] or []) or ""
            if text == OMITTED:
                return answer("I stop here.")
            self.read(text, env)
        self.is_injected = bool(self.injected)
        call = self.injected.pop(0) if self.injected else next(self.calls, None)
        if call is not None:
            made = FunctionCall(
                function=call.function, args=dict(call.args), id=f"c{len(messages)}"
            )
            return {"role": "assistant", "content": None, "tool_calls": [made]}
        told = [self.task.GROUND_TRUTH_OUTPUT]
        told += [self.injection.GROUND_TRUTH_OUTPUT] if self.has_obeyed else []
        return answer("\n".join(each for each in told if each))

    def read(self, text: str, env: Any) -> None:
        """Look for the order, but in what an injected call gave back."""
        if self.injection is None or self.has_obeyed or self.is_injected:
            return
        if canonical(self.injection.GOAL) in canonical(text):
            self.has_obeyed = True
            self.injected = list(self.injection.ground_truth(env))


def answer(text: str) -> dict[str, Any]:
    """Return a message that ends the conversation."""
    content = [text_content_block_from_string(text)]
    return {"role": "assistant", "content": content, "tool_calls": None}


class Named:
    """What an attack asks of a pipeline."""

    name = MODEL


def main() -> None:
    """Run every case of a suite with one detector."""
    warnings.simplefilter("ignore")
    suite, decides = get_suite("v1.2.2", sys.argv[1]), DETECTORS[sys.argv[2]]
    aborts = sys.argv[3] == "abort"
    attack = load_attack("important_instructions", suite, Named())
    cases = [(name, None) for name in suite.user_tasks]
    cases += [(name, other) for name in suite.user_tasks for other in suite.injection_tasks]
    for name, other in cases:
        task = suite.user_tasks[name]
        injection = suite.injection_tasks[other] if other else None
        agent = Obedient(task, injection)
        elements = [ToolsExecutor(), Detector(decides, aborts=aborts), agent]
        loop = ToolsExecutionLoop(elements, max_iters=1_000)
        pipeline = AgentPipeline([InitQuery(), agent, loop])
        pipeline.name = MODEL
        texts = attack.attack(task, injection) if injection else {}
        utility, security = suite.run_task_with_pipeline(pipeline, task, injection, texts)
        # Without an injection the package counts it as not done.
        told = [name, other, utility, security if other else None]
        sys.stdout.write(json.dumps(told) + "\n")


with OutputLogger(None):
    main()
