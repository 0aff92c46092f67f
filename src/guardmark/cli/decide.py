"""Commands for decisions: `compare` defenses, `gate` a release, `plan` sizes."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guardmark.cli.run_argument import RunPath, last_if_none
from guardmark.cli.terminal import drawn, echo, echo_drawn, echo_json, echo_text, level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.compare.runs_compared import ScopedComparisons
    from guardmark.app.planning import SizePlan
    from guardmark.app.results.gating import Gated
    from guardmark.stats.planning import Layout


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
        from guardmark.store.run_dir import whole_file

        with whole_file(html) as file:
            file.write(_drawn(compared, "html", texts=not no_texts).encode())
        echo(f"{'page':<10}{html}")
        return
    form = "json" if as_json else "markdown" if markdown else "terminal"
    drawn = _drawn(compared, form, texts=not no_texts)
    (echo_json if as_json else echo_text if markdown else echo_drawn)(drawn)


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
    document = comparison_document(compared.runs, compared.pairs)
    if html is not None:
        from guardmark.reports.render.html.page import render_html
        from guardmark.store.run_dir import whole_file

        with whole_file(html) as file:
            file.write(render_html(document, texts=False).encode())
        echo(f"{'page':<10}{html}")
    elif as_json:
        echo_json(figures_json(compared.pairs))
    else:
        echo_drawn(drawn(document))
    return True


def _drawn(compared: ScopedComparisons, form: str, *, texts: bool) -> str:
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


_COUNT = click.IntRange(min=1)


class Share(click.FloatRange):
    """A share between 0 and 1; whoever writes points is told what they are as a share."""

    def __init__(self) -> None:
        super().__init__(min=0, max=1, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a share."""
        try:
            stated = float(value)
        except (TypeError, ValueError):
            return super().convert(value, param, ctx)
        if 1 <= stated <= _POINTS:
            self.fail(
                f"{stated:g} is no share: {stated:g} points are {stated / 100:g}.", param, ctx
            )
        return super().convert(value, param, ctx)


_POINTS = 100
_SHARE = Share()


@click.command(
    help=(
        "Work out how many samples a claim needs, and how often a run of that size "
        "shows it. Choose one claim: --margin, --zero-events, --difference or "
        "--non-inferiority. With --variants, runs in groups are simulated and "
        "analysed as a run is."
    )
)
@click.option("--margin", type=_SHARE, help="Half-width of the interval of one rate.")
@click.option("--rate", type=_SHARE, help="True rate assumed; for --margin the worst case, 0.5.")
@click.option("--zero-events", type=_SHARE, help="Claim a rate below this from zero events.")
@click.option("--difference", type=_SHARE, help="Difference of two paired rates to detect.")
@click.option(
    "--non-inferiority", type=_SHARE, help="Largest difference that still counts as not worse."
)
@click.option("--discordance", type=_SHARE, help="Share of samples two defenses differ on.")
@click.option(
    "--power",
    type=_SHARE,
    help=(
        "Wanted chance that a run confirms the claim; 0.95 for --margin and 0.8 for "
        "pairs, if not given."
    ),
)
@click.option(
    "--confidence", type=_SHARE, default=0.95, show_default=True, help="Confidence of the claim."
)
@click.option(
    "--tests",
    type=_COUNT,
    default=2,
    show_default=True,
    help="Tests in all, with --difference: 6 for 3 defenses.",
)
@click.option(
    "--variants",
    metavar="N|FROM-TO",
    help="Variants in each group: a number, or a range such as 1-9.",
)
@click.option(
    "--icc", type=click.FloatRange(0, 1), help="Correlation within a group. [default: 0.5]"
)
@click.option(
    "--like",
    metavar="RUN",
    type=_PATH,
    help=(
        "Take sizes of groups and correlation from a run: of its attacks, or with "
        "--non-inferiority of its benign samples."
    ),
)
@click.option(
    "--tasks",
    "agent_tasks",
    type=click.IntRange(min=2, max=2_000),
    help=(
        "Of agents: how many injections are needed beside this many tasks, for "
        "attack success known to --margin."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan_command(
    *,
    variants: str | None,
    icc: float | None,
    like: Path | None,
    agent_tasks: int | None,
    as_json: bool,
    **claim: Any,
) -> None:
    """Plan a size."""
    from guardmark.app.planning import USUAL_ICC, Claim, layout_of, plan_size

    if agent_tasks is not None:
        _plan_injections(agent_tasks, claim, as_json=as_json)
        return
    if like is None:
        layout, source = layout_of(variants, USUAL_ICC if icc is None else icc), ""
    elif variants is not None or icc is not None:
        raise click.UsageError("--like takes sizes and ICC of a run: leave out --variants, --icc.")
    else:
        from guardmark.app.results.group_layout import read_layout

        is_attack = claim["non_inferiority"] is None  # which is about false positives
        layout, source = read_layout(like, is_attack=is_attack), str(like)
    planned = plan_size(Claim(**claim), layout)
    if as_json:
        document = asdict(planned) | {"like": source or None}
        document["promise"]["rows"] = planned.promise.rows
        echo_json(json.dumps(document, indent=2))
    else:
        echo(*_plan_lines(planned, source))


def _plan_injections(tasks: int, claim: dict[str, Any], *, as_json: bool) -> None:
    """Say how many injections are needed beside so many tasks."""
    from guardmark.analysis.agents.planning import plan_injections

    if claim["margin"] is None:
        raise click.UsageError("--tasks plans injections for a width: add --margin.")
    planned = plan_injections(
        tasks, claim["margin"], rate=claim["rate"] or 0.5, confidence=claim["confidence"]
    )
    if as_json:
        echo_json(json.dumps(asdict(planned), indent=2))
        return
    margin = f"±{100 * planned.margin:g} points"
    if planned.injections is None:
        echo(
            f"No number of injections: with {tasks:,} tasks attack success is known to "
            f"±{100 * planned.half_width:.1f} points at best, not to {margin}.",
            "Next: more tasks, or a wider margin.",
        )
        return
    echo(
        f"{planned.injections:,} injections beside {tasks:,} tasks: half of all runs know attack "
        f"success to {margin}.",
        f"Simulated and analysed, {planned.runs} runs a size, at a true rate of "
        f"{100 * planned.rate:g} %; tasks and injections differ as in suites of agents.",
    )


def _plan_lines(planned: SizePlan, source: str) -> Iterator[str]:
    promise = planned.promise
    layout = promise.layout
    if layout.is_alone:
        yield f"{promise.rows:,} {planned.unit}: {planned.claim}."
    else:
        about = "about " if layout.is_mixed else ""
        yield (
            f"{promise.groups:,} groups, {about}{promise.rows:,} {planned.unit} in all: "
            f"{planned.claim}."
        )
    if promise.chance is not None:
        how = "enumerated"
        if promise.runs:
            how = f"± {100 * promise.error:.1f}, {promise.runs:,} runs simulated and analysed"
        yield f"{100 * promise.chance:.1f} % of such runs show it ({how})."
    yield planned.assumption
    if layout.is_alone:
        yield "This counts independent samples. Variants of one prompt are worth less than as many"
        yield "prompts. Add --variants 5 --icc 0.5, or --like RUN, to plan for groups of them."
        return
    yield f"Assumes {_sizes_text(layout)} and ICC {layout.icc:.2g}{_like_text(source)}."
    if layout.is_mixed:
        yield "Groups of unequal size are worth less than as many rows in equal ones."
    yield "More groups help more than more variants of the same groups."


def _sizes_text(layout: Layout) -> str:
    """Say which sizes of groups a plan assumes."""
    if not layout.is_mixed:
        return f"{layout.known_sizes[0]:,} variants in every group"
    sizes = sorted(layout.sizes)
    middle = sizes[len(sizes) // 2]
    return (
        f"groups of {sizes[0]:,} to {sizes[-1]:,} variants (mean {layout.mean_size:.2g}, "
        f"median {middle:,})"
    )


def _like_text(source: str) -> str:
    return f", as in {source}" if source else ""


@click.command(
    help=(
        "Check RUN against limits. Exit code 0: every limit is held by its whole "
        "interval; 1: a limit is broken; 5: the data cannot decide, and about how "
        "many samples would."
    )
)
@click.argument("run", type=RunPath(), default="last")
@click.option("--policy", type=_PATH, help="YAML with the limits; default: those of the run.")
@click.option("--baseline", type=_PATH, help="Rates must not rise by more than regression_margin.")
@click.option("--junit", type=_PATH, help="Write the checks as JUnit XML.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a job summary.")
@click.option(
    "--public-key",
    metavar="FILE",
    type=_PATH,
    help=(
        "Public key of minisign: a run (and a baseline) that its holder did not sign is refused."
    ),
)
def gate_command(
    run: Path,
    policy: Path | None,
    baseline: Path | None,
    junit: Path | None,
    as_json: bool,
    markdown: bool,
    public_key: Path | None,
) -> int:
    """Check a run against limits."""
    from guardmark.app.results.gating import EXITS
    from guardmark.app.results.gating import gate as check_gate
    from guardmark.reports.chapters.gate import conclusion, gate_document
    from guardmark.reports.render.json.documents import gate_json
    from guardmark.reports.render.markdown import render_markdown

    if public_key is not None:
        from guardmark.app.verify.signed import require_signed

        require_signed(run, public_key)
        if baseline is not None:
            require_signed(baseline, public_key)
    gated = check_gate(run, policy=policy, baseline=baseline)
    if junit is not None:
        _write_junit(gated, junit)
    document = gate_document(gated.result, run=gated.run, caveats=gated.caveats)
    if as_json:
        output = gate_json(
            gated.result, run=gated.run, baseline=gated.baseline, caveats=gated.caveats
        )
    elif markdown:
        output = render_markdown(document, marker="guardmark-gate")
    elif level() < 0:
        output = conclusion(gated.result)
    else:
        output = drawn(document)
    (echo_json if as_json else echo_text if markdown else echo_drawn)(output)
    return EXITS[gated.result.standing]


def _write_junit(gated: Gated, path: Path) -> None:
    from guardmark.interchange.junit import gate_junit
    from guardmark.store.run_dir import errors_of_files, whole_file

    text = gate_junit(gated.result, run=gated.run, created_utc=gated.created_utc, head=gated.head)
    if path.exists() and not path.is_file():
        with errors_of_files(path):
            path.write_text(text, encoding="utf-8")  # a pipe or a device
        return
    with whole_file(path) as file:
        file.write(text.encode())
