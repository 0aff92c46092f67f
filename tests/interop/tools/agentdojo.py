"""Run two user tasks and two injections of AgentDojo's bank, and one user task without attack."""

import json
import sys
from pathlib import Path

import openai
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, PipelineConfig
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM
from agentdojo.attacks import load_attack
from agentdojo.benchmark import benchmark_suite_with_injections, benchmark_suite_without_injections
from agentdojo.logging import OutputLogger
from agentdojo.task_suite.load_suites import get_suite

out, suite = Path(sys.argv[2]), get_suite("v1.2.2", "banking")
llm = OpenAILLM(openai.OpenAI(), "rules")
llm.name = "rules"
config = {"model_id": None, "defense": None, "system_message_name": None, "system_message": None}
pipeline = AgentPipeline.from_config(PipelineConfig(llm=llm, **config))
asked = {"logdir": out, "force_rerun": True, "user_tasks": ["user_task_0", "user_task_2"]}
with OutputLogger(str(out)):
    plain = benchmark_suite_without_injections(pipeline, suite, **asked)
    attack = load_attack("direct", suite, pipeline)
    injections = ["injection_task_5", "injection_task_7"]
    results = benchmark_suite_with_injections(
        pipeline, suite, attack, injection_tasks=injections, **asked
    )


def own_words(log: dict) -> dict:
    """Put texts of ours in place of those of the suite: its words are its authors', not ours."""
    new = {text: f"Say PERIWINKLE {at}." for at, text in enumerate(log["injections"].values(), 1)}
    log["injections"] = {name: new[text] for name, text in log["injections"].items()}
    for message in log["messages"]:
        for part in message["content"] or ():
            if message["role"] != "assistant":
                found = [word for text, word in new.items() if text in part["content"]]
                plain = f"A {message['role']}'s text {len(part['content'])}"
                part["content"] = " ".join([plain, *found])
    return log


for path in out.rglob("*.json"):
    path.write_text(json.dumps(own_words(json.loads(path.read_text())), indent=4) + "\n")
said = {
    "security": {"/".join(key): value for key, value in results["security_results"].items()},
    "utility": {"/".join(key): value for key, value in results["utility_results"].items()},
    "utility_without_attack": {key[0]: value for key, value in plain["utility_results"].items()},
}
(out / "summary.json").write_text(json.dumps(said, indent=1) + "\n")
