"""`guardmark matrix`: several configurations of one file, and one table over them."""

from __future__ import annotations

from pathlib import Path

import click

_PATH = click.Path(path_type=Path)
_EXIT_FAILED = 5
_EXIT_INTERRUPTED = 130


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Run every row of MATRIX, a file with `global` settings and `rows` that change "
        "them, and lay the figures side by side. The same command goes on where it stopped."
    )
    @click.argument("matrix", type=_PATH)
    @click.option("-o", "--out", type=_PATH, required=True, help="Folder of runs and tables.")
    @click.option("--limit", type=click.IntRange(min=1), help="Take N samples, stratified.")
    @click.option("--offline", is_flag=True, help="Refuse every call to a service.")
    @click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
    def matrix(matrix: Path, out: Path, limit: int | None, offline: bool, as_json: bool) -> int:
        from guardmark.cli.matrix_output import carry_out

        done = carry_out(matrix, out, limit=limit, offline=offline)
        name = "manifest.json" if as_json else "matrix_report.md"
        click.echo(done.folder.file(name).read_text(encoding="utf-8"), nl=False)
        if done.is_interrupted:
            return _EXIT_INTERRUPTED
        return 0 if all(line.status == "success" for line in done.lines) else _EXIT_FAILED

    return matrix
