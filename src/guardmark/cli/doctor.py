"""`guardmark doctor`: what is installed here, and what works."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.config.installation import Check


_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Check this installation, extra by extra; with CONFIG, each of its defenses "
        "instead: installed, reachable, answers that fit its profile, deterministic, "
        "stateless, telling attacks from benign texts, kind of score, limits. Each "
        "is asked a few known texts three times. Exit code 1 when one cannot be "
        "built or reached."
    )
)
@click.argument("config", type=_PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(*, config: Path | None, as_json: bool) -> int:
    """Examine this installation, or the defenses of a configuration."""
    from guardmark.config.installation import examine_installation

    found: dict[str, Sequence[Check]] = {"": examine_installation()}
    if config is not None:
        from guardmark.app.preflight import examine_config

        found = examine_config(config)
    if as_json:
        rows: dict[str, list[dict[str, object]]] = {}
        for name, checks in found.items():
            rows[name] = [asdict(check) for check in checks]
        if config is None:
            echo_json(json.dumps(rows[""], indent=2, ensure_ascii=False))
        else:
            echo_json(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        echo(*_check_lines(found))
    for checks in found.values():
        for check in checks:
            if check.is_fine is False and check.is_needed:
                return 1
    return 0


def _check_lines(found: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    """Return the lines in which a person reads checks, under what they are about."""
    for about, checks in found.items():
        if about:
            yield f"defense {about}"
        width = max(len(check.subject) for check in checks)
        for check in checks:
            mark = {True: "ok", False: "--", None: "?"}[check.is_fine]
            detail = " ".join(check.detail.split())[:400]
            yield f"{mark:<2}  {check.subject:<{width}}  {detail}"
