"""`guardmark compare`: defenses of one run, or of several, against each other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.run_argument import RunPath, last_if_none
from guardmark.cli.terminal import drawn, echo, echo_drawn, echo_json, echo_text, level

if TYPE_CHECKING:
    from guardmark.analysis.compare.runs_compared import ScopedComparisons


_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Compare the defenses of RUN pair by pair; with several RUNs, the later ones "
        "with the first, over the samples that all of them have. Nothing is called."
    )
)
@click.argument("runs", nargs=-1, type=RunPath(), callback=last_if_none)
@click.option("--only", default="", metavar="A,B", help="Only these defenses.")
@click.option("--against", default="", metavar="NAME", help="Compare all others with this one.")
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
    help="A false positive rate higher by no more than this counts as not worse.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Samples to read on which a pair differs, for each side.",
)
@click.option(
    "--chains",
    type=click.IntRange(2, 3),
    metavar="N",
    help=(
        "Rank all chains of at most N of the defenses, blocking when any or when all "
        "do, from their stored decisions: chosen on one half of the groups, told on "
        "the other."
    ),
)
@click.option("--no-texts", is_flag=True, help="Leave prompt texts out: hashes only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@click.option(
    "--html", type=_PATH, help="Write a page to this file, to open in a browser or to mail."
)
def compare_command(
    runs: tuple[Path, ...],
    only: str,
    against: str,
    margin: float | None,
    samples: int,
    chains: int | None,
    no_texts: bool,
    as_json: bool,
    markdown: bool,
    html: Path | None,
) -> None:
    """Compare defenses."""
    from guardmark.analysis.compare.runs_compared import Wanted
    from guardmark.app.results.reading import compare_runs

    if chains and (against or margin is not None or samples != 3):
        raise click.UsageError(
            "--chains ranks chains: leave out --against, --margin and --samples."
        )
    names = tuple(word.strip() for word in only.split(",") if word.strip())
    if _compare_agents(runs, names, against=against, html=html, as_json=as_json):
        return
    wanted = Wanted(only=names, against=against, listed=samples, chains=chains or 0)
    compared = compare_runs(runs, wanted, margin=margin)
    if html is not None:
        from guardmark.store.whole_files import whole_file

        with whole_file(html) as file:
            file.write(_drawn(compared, "html", texts=not no_texts).encode())
        echo(f"{'page':<10}{html}")
        return
    if as_json:
        echo_json(_drawn(compared, "json", texts=not no_texts))
    elif markdown:
        echo_text(_drawn(compared, "markdown", texts=not no_texts))
    else:
        echo_drawn(_drawn(compared, "terminal", texts=not no_texts))


def _compare_agents(
    runs: tuple[Path, ...], only: tuple[str, ...], *, against: str, html: Path | None, as_json: bool
) -> bool:
    """Compare arms of agents; False where the runs are of none."""
    from guardmark.app.results.arm_comparison import compare_agent_runs
    from guardmark.reports.chapters.agents import comparison_document
    from guardmark.reports.render.json.documents import figures_json

    compared = compare_agent_runs(runs, only=only, against=against)
    if compared is None:
        return False
    document = comparison_document(compared.runs, compared.pairs, compared.spending)
    if html is not None:
        from guardmark.reports.render.html.page import render_html
        from guardmark.store.whole_files import whole_file

        with whole_file(html) as file:
            file.write(render_html(document, texts=False).encode())
        echo(f"{'page':<10}{html}")
    elif as_json:
        echo_json(figures_json(compared.pairs))
    else:
        echo_drawn(drawn(document))
    return True


def _drawn(compared: ScopedComparisons, form: str, *, texts: bool) -> str:
    """Draw a comparison in the form that was asked for."""
    from guardmark.reports.chapters.chains import chains_document
    from guardmark.reports.chapters.comparison import comparison_document, shorten_comparison
    from guardmark.reports.render.json.documents import comparison_json, figures_json
    from guardmark.reports.render.markdown import render_markdown

    if compared.chains is not None:
        document = chains_document(compared.chains)
        written = partial(figures_json, compared.chains)
    else:
        document = comparison_document(compared, texts=texts)
        if form == "terminal" and level() <= 0:
            document = shorten_comparison(compared, document)
        written = partial(comparison_json, compared, texts=texts)
    if form == "json":
        return written()
    if form == "html":
        from guardmark.reports.render.html.page import render_html

        return render_html(document, texts=texts)
    if form == "markdown":
        return render_markdown(document, marker="guardmark-comparison")
    return drawn(document)
