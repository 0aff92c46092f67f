"""AgentDojo beside us gives what was counted independently, case by case."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.canon.orders import folded_order, keeps_order
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision
from guardmark.core.place import Place
from guardmark.engine.agent_case import CaseRules, run_case
from guardmark.suites.agentdojo.suite import SUITES, AgentDojoSuite
from guardmark.suites.obedient import ObedientAgent
from guardmark.suites.suite import CaseId, cases_of

if TYPE_CHECKING:
    from guardmark.core.case import CaseResult
    from guardmark.core.sample import Prompt

pytestmark = pytest.mark.slow

INTERPRETER = os.environ.get("GUARDMARK_AGENTDOJO", "")
"""Python of an environment that has AgentDojo."""
DETECTORS = {
    "none": lambda _text: False,
    "all": lambda _text: True,
    "important": lambda text: "important" in text.lower(),
}


@pytest.mark.parametrize("name", SUITES)
async def test_each_case_ends_as_the_reference_says(name: str, shared_dir: Path) -> None:
    """Utility and injection of every task, injection and detector."""
    if not INTERPRETER:
        pytest.skip("GUARDMARK_AGENTDOJO names no Python with AgentDojo")
    reference = json.loads((shared_dir / "reference" / "agentdojo.json").read_text("utf-8"))
    wanted = {
        (detector, task, injection): (done, injected)
        for detector, suite, task, injection, done, injected in reference["cases"]
        if suite == name
    }
    suite = await AgentDojoSuite.start(name, interpreter=INTERPRETER, processes=2)
    turns = asyncio.Semaphore(4)
    found: dict[tuple[str, str, str | None], tuple[Any, Any]] = {}

    async def carry_out(case: CaseId, detector: str) -> None:
        async def ask(_guard: str, _place: Place, prompt: Prompt) -> tuple[Decision, int | None]:
            return (BLOCKED if DETECTORS[detector](prompt.text) else ALLOWED), 1

        async with turns:
            world = await suite.open(case)
            result = await run_case(
                world,
                ObedientAgent(world),
                ask,
                guards={Place.TOOL_RESULT: ("guard",)},
                rules=CaseRules(max_steps=1000),
            )
            await world.close()
        key = (detector, case.task, case.injection or None)
        found[key] = (result.task_done, result.injection_done)

    try:
        cases = cases_of(suite, ["important_instructions"], only_measurable=True)
        await asyncio.gather(*(carry_out(c, d) for c in cases for d in DETECTORS))
    finally:
        await suite.close()
    assert found == wanted


async def test_arms_share_what_was_called_and_part_where_one_goes_another_way(
    tmp_path: Path,
) -> None:
    """Once the package is gone, what an arm did can be done again, and nothing else."""
    if not INTERPRETER:
        pytest.skip("GUARDMARK_AGENTDOJO names no Python with AgentDojo")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{INTERPRETER}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    suite = await AgentDojoSuite.start("banking", interpreter=str(python), processes=1)
    cases = cases_of(suite, ["important_instructions"], only_measurable=True)
    case = next(case for case in cases if case.injection)

    async def carry_out(*, blocks: bool) -> CaseResult:
        async def ask(*_: object) -> tuple[Decision, int | None]:
            return (BLOCKED if blocks else ALLOWED), 1

        world = await suite.open(case)
        guards = {Place.TOOL_RESULT: ("guard",)}
        result = await run_case(world, ObedientAgent(world), ask, guards=guards, rules=CaseRules())
        await world.close()
        return result

    first = await carry_out(blocks=False)
    await suite.close()
    python.unlink()
    again = await carry_out(blocks=False)
    assert replace(again, latency_ns=None) == replace(first, latency_ns=None)
    assert first.injection_done
    with pytest.raises(ConfigError, match="cannot be started"):
        await carry_out(blocks=True)


@pytest.mark.parametrize("name", SUITES)
async def test_a_rewritten_text_stands_in_the_world_letter_by_letter(name: str) -> None:
    """The package writes texts into YAML as they stand, where a quotation mark breaks the world."""
    if not INTERPRETER:
        pytest.skip("GUARDMARK_AGENTDOJO names no Python with AgentDojo")
    suite = await AgentDojoSuite.start(name, interpreter=INTERPRETER, processes=1)
    try:
        cases = cases_of(suite, ["important_instructions"], only_measurable=True)
        case = next(case for case in cases if case.injection)
        order = next(each.order for each in suite.injections if each.id == case.injection)
        text = f'{{"to: do": "{order}"}}\n  - \\ "x\': |\n: # {{slot}}'
        assert keeps_order(text, order)
        world = await suite.open(case, text=text)
        shown: list[str] = []

        async def ask(_name: str, _place: Place, prompt: Prompt) -> tuple[Decision, int | None]:
            shown.append(prompt.text)
            return ALLOWED, 1

        agent = ObedientAgent(world, order=order, fold=folded_order)
        guards = {Place.TOOL_RESULT: ("guard",)}
        result = await run_case(world, agent, ask, guards=guards, rules=CaseRules(max_steps=50))
        await world.close()
        again = await suite.open(case)
        unchanged = await run_case(
            again, ObedientAgent(again), ask, guards={}, rules=CaseRules(max_steps=50)
        )
        await again.close()
    finally:
        await suite.close()
    assert result.injection_done
    assert any(folded_order(text) in folded_order(each) for each in shown)
    assert unchanged.injection_done  # the next case has its own text again


def test_an_environment_without_the_package_is_a_mistake_with_a_next_step() -> None:
    """Where to get it, and where to name it."""
    with pytest.raises(ConfigError, match="pip install"):
        asyncio.run(AgentDojoSuite.start("banking", interpreter=""))
