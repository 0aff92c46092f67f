"""Send the attacks with PyRIT, plain and encoded, scored and not; dump the tables that matter."""

import asyncio
import json
import os
import sqlite3
import sys
from dataclasses import asdict
from pathlib import Path

from pyrit.analytics.result_analysis import analyze_results
from pyrit.converter import Base64Converter
from pyrit.executor.attack import (
    AttackConverterConfig,
    AttackExecutor,
    AttackScoringConfig,
    PromptSendingAttack,
)
from pyrit.memory import CentralMemory
from pyrit.prompt_normalizer import ConverterConfiguration
from pyrit.prompt_target import OpenAIChatTarget
from pyrit.score import SubStringScorer
from pyrit.setup import initialize_pyrit_async

TABLES = ("AttackResultEntries", "PromptMemoryEntries", "ScoreEntries")


async def main(texts: list[dict[str, str]], out: Path, path: Path) -> None:
    """Run three attacks over the objectives."""
    await initialize_pyrit_async("SQLite", db_path=path, load_defaults=False, silent=True)
    key, url = os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"]
    target = OpenAIChatTarget(model_name="rules", endpoint=url, api_key=key)
    scoring = AttackScoringConfig(objective_scorer=SubStringScorer(substring="PERIWINKLE"))
    encoded = AttackConverterConfig(
        request_converters=ConverterConfiguration.from_converters(converters=[Base64Converter()])
    )
    objectives = [row["text"] for row in texts if row["label"] == "attack"]
    for wanted, options in (
        (objectives, {"attack_scoring_config": scoring}),
        (objectives[:2], {"attack_scoring_config": scoring, "attack_converter_config": encoded}),
        (objectives[:1], {}),
    ):
        attack = PromptSendingAttack(objective_target=target, **options)
        await AttackExecutor().execute_attack_async(
            attack=attack, objectives=wanted, return_partial_on_failure=True
        )
    memory = CentralMemory.get_memory_instance()
    stats = analyze_results(list(memory.get_attack_results()))
    (out / "summary.json").write_text(json.dumps(asdict(stats["Overall"]), indent=1) + "\n")
    memory.dispose_engine()
    with sqlite3.connect(path) as database:
        others = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN (?, ?, ?)"
        for (name,) in database.execute(others, TABLES).fetchall():
            database.execute(f'DROP TABLE "{name}"')
        database.execute(
            "UPDATE AttackResultEntries SET error_traceback = NULL, retry_events_json = NULL"
        )
        # How it failed is told at length, with paths of this machine.
        cut = "substr({0}, 1, instr({0} || char(10) || 'Traceback', char(10) || 'Traceback') - 1)"
        for column in ("original_value", "converted_value"):
            database.execute(f"UPDATE PromptMemoryEntries SET {column} = {cut.format(column)}")  # noqa: S608 - two columns
        lines = [line for line in database.iterdump() if not line.startswith("CREATE INDEX")]
    (out / "memory.sql").write_text("\n".join(lines) + "\n")


asked = json.loads(Path(sys.argv[1]).read_text())
asyncio.run(main(asked, Path(sys.argv[2]), Path("memory.db").resolve()))
