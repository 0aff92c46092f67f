"""`guardmark gate`: may this release go out, by limits fixed beforehand."""

from __future__ import annotations

from pathlib import Path

import click


def gate_command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Check RUN against limits. Exit code 0: every limit is held by its whole interval; "
        "1: a limit is broken; 5: the data cannot decide, and about how many samples would."
    )
    @click.argument("run", type=click.Path(path_type=Path))
    @click.option(
        "--policy",
        type=click.Path(path_type=Path),
        help="YAML with the limits; what the run's configuration says if not given.",
    )
    @click.option(
        "--baseline",
        type=click.Path(path_type=Path),
        help="Run that rates must not rise against by more than regression_margin.",
    )
    @click.option("--junit", type=click.Path(path_type=Path), help="Write the checks as JUnit XML.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option("--markdown", is_flag=True, help="Print Markdown, for a job summary.")
    def gate(
        run: Path,
        policy: Path | None,
        baseline: Path | None,
        junit: Path | None,
        as_json: bool,
        markdown: bool,
    ) -> int:
        from guardmark.app.results.gate_policy import EXITS
        from guardmark.app.results.gating import gate as check_gate
        from guardmark.reports.chapters.gate import gate_document
        from guardmark.reports.render.json.documents import gate_json
        from guardmark.reports.render.markdown import render_markdown
        from guardmark.reports.render.terminal import render_terminal

        gated = check_gate(run, policy=policy, baseline=baseline)
        if junit is not None:
            from guardmark.app.results.gating import write_junit

            write_junit(gated, junit)
        document = gate_document(gated.result, run=gated.run, caveats=gated.caveats)
        if as_json:
            said = gate_json(
                gated.result, run=gated.run, baseline=gated.baseline, caveats=gated.caveats
            )
        elif markdown:
            said = render_markdown(document, marker="guardmark-gate")
        else:
            said = render_terminal(document)
        click.echo(said, nl=False)
        return EXITS[gated.result.standing]

    return gate
