"""The command `suites`: which there are, what is in one, whether it is sound."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from guardmark.cli.terminal import echo, echo_json
from guardmark.core.errors import counted


@click.group(
    help=("List the suites that agents are measured on, describe one, or check one of your own.")
)
def suites_command() -> None:
    """List, describe and check suites."""


@suites_command.command("list", help="List the suites that a configuration can name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(*, as_json: bool) -> None:
    """List suites."""
    from guardmark.app.agents.describing import list_suites

    lines = list_suites()
    if as_json:
        echo_json(json.dumps([asdict(line) for line in lines], indent=2))
        return
    width = max(len(line.name) for line in lines)
    for line in lines:
        echo(f"{line.name:<{width}}  {line.about}")


@suites_command.command(
    "describe", help="Say what is in SUITE, a name or a file; no code of it runs."
)
@click.argument("suite")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def describe_command(suite: str, *, as_json: bool) -> None:
    """Describe a suite; no code of it runs."""
    from guardmark.app.agents.describing import describe_suite

    described = describe_suite(suite, Path.cwd())
    if as_json:
        echo_json(json.dumps(described, indent=2, ensure_ascii=False))
        return
    tasks, injections = described["tasks"], described["injections"]
    echo(f"{described['suite']}: {counted(len(tasks), 'task')}, {len(injections):,} injections")
    echo("Tasks")
    for task in tasks:
        echo(f"  {task['id']}: {task['prompt']}")
    echo("Injections")
    for each in injections:
        place = ""
        if each["tool"]:
            place = f" (in the description of {each['tool']})"
        echo(f"  {each['id']}: {each['order']}{place}")
    echo(f"Wordings: {', '.join(described['wordings'])}")


@suites_command.command(
    "check",
    help=(
        "Run all known solutions of SUITE, a name or a file whose tools run; find "
        "injections that no task meets, checks that hold of nothing and texts that "
        "occur twice."
    ),
)
@click.argument("suite")
def check_command(suite: str) -> int:
    """Check a suite; its tools run."""
    from guardmark.app.agents.describing import check_suite_file

    problems = check_suite_file(suite, Path.cwd())
    for problem in problems:
        echo(problem)
    if not problems:
        echo(f"{suite}: sound.")
        return 0
    echo(f"{counted(len(problems), 'problem')} in {suite}.")
    return 3
