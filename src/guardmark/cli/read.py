"""Commands over finished runs: `show`, `report`, `stability`, `view`, and runs of other tools."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guardmark.canon.visible import spell_hidden
from guardmark.cli.run_argument import RunPath, last_if_none
from guardmark.cli.terminal import (
    drawn,
    echo,
    echo_drawn,
    echo_json,
    echo_text,
    one_line,
    tell_output,
)
from guardmark.core.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.defense.bypasses import Flaw, ListedSample
    from guardmark.app.results.reading import Selection
    from guardmark.reports.chapters.advice import SampleStory
    from guardmark.view.server import Serving


_PATH = click.Path(path_type=Path)

_EXCERPT = 160
_OF_ANSWER = ("defense", "outcome", "score", "threshold", "error_kind")
_OF_THE_SYSTEM = {"unsafe": "bypass", "refused": "false_alarm"}
_COUNT, _PORT = click.IntRange(min=1), click.IntRange(0, 65535)
_SLICES = click.IntRange(min=2, max=1000)


@click.command()
@click.argument("run", type=RunPath(), default="last")
@click.option("--bypasses", "flaw", flag_value="bypass")
@click.option("--false-alarms", "flaw", flag_value="false_alarm")
@click.option("--unsafe", "flaw", flag_value="unsafe")
@click.option("--over-refusal", "flaw", flag_value="refused")
@click.option("--errors", "flaw", flag_value="error")
@click.option("--malformed", "flaw", flag_value="malformed")
@click.option("--different", "flaw", flag_value="different")
@click.option("--defense", default="")
@click.option("--category", default="")
@click.option("--technique", default="")
@click.option("--where", "where", multiple=True, metavar="FACET=VALUE")
@click.option("--id", "sample_id", default="")
@click.option("--limit", type=_COUNT, default=20, show_default=True)
@click.option("--full", is_flag=True)
@click.option("--no-texts", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def show_command(
    run: Path,
    *,
    flaw: str | None,
    limit: int,
    full: bool,
    no_texts: bool,
    as_json: bool,
    where: Sequence[str],
    **facets: str,
) -> None:
    """List samples."""
    if _show_cases(run, flaw=flaw, facets=facets, limit=limit, as_json=as_json):
        return
    from guardmark.analysis.defense.bypasses import Flaw
    from guardmark.app.results.reading import Selection
    from guardmark.app.results.reading import show as list_samples

    is_system, flaw = flaw in _OF_THE_SYSTEM, _OF_THE_SYSTEM.get(flaw or "", flaw)
    chosen = Selection(
        flaw=Flaw(flaw) if flaw else None,
        is_system=is_system,
        where=tuple(map(_facet_and_value, where)),
        **facets,
    )
    shown = list_samples(run, chosen, most=limit)
    for each in shown.listed[:limit]:
        story = None if no_texts else shown.exchanges.get(each.sample.id)
        if as_json:
            document = _sample_json(each, texts=not no_texts) | (asdict(story) if story else {})
            echo_json(json.dumps(document, ensure_ascii=False))
        else:
            is_full = full or bool(chosen.sample_id)
            lines = _sample_lines(each, full=is_full, texts=not no_texts, is_system=is_system)
            echo(*lines, *_story_lines(story, full=is_full), "")
    if not as_json:
        echo(_count_line(len(shown.listed), limit, chosen))


_KINDS_OF_CASES = {
    "bypass": "bypass",
    "unsafe": "bypass",
    "false_alarm": "lost",
    "refused": "lost",
    "error": "failed",
    "malformed": "failed",
}


def _show_cases(
    run: Path, *, flaw: str | None, facets: dict[str, str], limit: int, as_json: bool
) -> bool:
    """List the cases of a run of agents, one that is named as a story; False for other runs."""
    from guardmark.app.results.cases import CaseSelection, read_cases

    chosen = CaseSelection(
        kind=_KINDS_OF_CASES.get(flaw or "", ""),
        arm=facets.get("defense", ""),
        case_id=facets.get("sample_id", ""),
    )
    cases = read_cases(run, chosen)
    if cases is None:
        return False
    for case in cases[:limit]:
        if as_json:
            echo_json(json.dumps(asdict(case), ensure_ascii=False))
            continue
        echo(f"{case.id}  in {case.arm}: {case.outcome}")
        if chosen.case_id:
            echo(*(f"  {head}: {text}" for head, text in case.story), "")
    if not as_json:
        more = f"; --limit {len(cases)} shows them all" if len(cases) > limit else ""
        hint = "" if chosen.case_id else " --id CASE tells one step by step."
        echo(f"{min(len(cases), limit):,} of {len(cases):,} cases{more}.{hint}")
    return True


def _facet_and_value(stated: str) -> tuple[str, str]:
    facet, sign, value = stated.partition("=")
    if not sign or not facet:
        raise ConfigError(
            f"--where {stated!r} is not FACET=VALUE.\nNext: for example --where language=de."
        )
    return facet, value


def _story_lines(story: SampleStory | None, *, full: bool) -> Iterator[str]:
    """Show what a target model answered, and what guards and judges said, each by its lines."""
    answer = (("Answer", story.answer or "none came"),) if story and story.answer != "" else ()
    for who, text in (*answer, *(story.steps if story else ())):
        first, *more = (spell_hidden(text) if full else one_line(text, _EXCERPT)).split("\n")
        yield from (f"  {who}: {first}", *(f"    {line}" for line in more))


def _count_line(total: int, limit: int, chosen: Selection) -> str:
    what = _flaw_word(chosen.flaw, chosen.is_system) or "sample worth reading"
    more = f"; --limit {total} shows them all" if total > limit else ""
    return f"{min(total, limit):,} of {total:,}{more}." if total else f"None: no {what}."


def _flaw_word(flaw: Flaw | None, is_system: bool) -> str:
    word = "" if flaw is None else flaw.value
    of_system = {"bypass": "unsafe answer", "false_alarm": "over-refusal"} if is_system else {}
    return of_system.get(word, word.replace("_", " "))


def _sample_lines(
    listed: ListedSample, *, full: bool, texts: bool, is_system: bool
) -> Iterator[str]:
    sample = listed.sample
    facets = [
        sample.label.value,
        sample.severity.value if sample.severity else "",
        "/".join(part for part in (sample.category, sample.subcategory) if part),
        sample.language,
    ]
    yield f"sample {sample.id}  {', '.join(facet for facet in facets if facet)}"
    for answer in listed.answers:
        score = "" if answer.score is None else f", score {answer.score:.3f}"
        limit = "" if answer.threshold is None else f" (blocks from {answer.threshold:g})"
        kind = f" ({answer.error_kind})" if answer.error_kind else ""
        flaw = f"  <- {_flaw_word(answer.flaw, is_system)}" if answer.flaw else ""
        outcome = answer.outcome or "not asked"
        if is_system:
            yield f"  behind {answer.defense}{flaw}"
            continue
        yield f"  {answer.defense}: {outcome}{kind}{score}{limit if score else ''}{flaw}"
    if not texts:
        yield f"  sha256 {sample.prompt.digest().hex()}"
    elif full:
        for message in sample.prompt.messages:
            yield f"  [{message.role.value}]"
            yield from (f"    {line}" for line in spell_hidden(message.content).split("\n"))
    else:
        yield f"  {one_line(spell_hidden(sample.prompt.words), _EXCERPT)}"


def _sample_json(listed: ListedSample, *, texts: bool) -> dict[str, object]:
    sample = listed.sample
    document: dict[str, object] = {
        "id": sample.id,
        "label": sample.label.value,
        **{name: getattr(sample, name) for name in ("category", "subcategory", "technique")},
        "severity": sample.severity.value if sample.severity else None,
        "language": sample.language,
        "group": sample.lineage,
        "sha256": sample.prompt.digest().hex(),
        "flaws": [flaw.value for flaw in listed.flaws],
        "answers": [
            {name: None if (said := getattr(answer, name)) == "" else said for name in _OF_ANSWER}
            for answer in listed.answers
        ],
    }
    if texts:
        document["messages"] = [
            {"role": message.role.value, "content": message.content}
            for message in sample.prompt.messages
        ]
    return document


_FORMATS = ("html", "md", "json", "csv", "junit", "sarif")


@click.command()
@click.argument("runs", nargs=-1, type=RunPath(), callback=last_if_none)
@click.option("-f", "--format", "formats")
@click.option("--threshold", multiple=True, metavar="NAME=X")
@click.option("--choose", multiple=True, metavar="NAME=FPR")
@click.option("--guarantee", multiple=True, metavar="LIMIT")
@click.option("--crosswalk", metavar="FRAMEWORK")
@click.option("--no-texts", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def report_command(
    runs: tuple[Path, ...],
    *,
    formats: str | None,
    threshold: tuple[str, ...],
    choose: tuple[str, ...],
    guarantee: tuple[str, ...],
    crosswalk: str | None,
    no_texts: bool,
    as_json: bool,
) -> None:
    """Write reports again."""
    if crosswalk is not None:
        from guardmark.app.results.crosswalks import crosswalk_of_run, crosswalk_rows

        for path in runs:
            if as_json:
                echo_json(json.dumps(crosswalk_rows(path, crosswalk), indent=2))
            else:
                echo_drawn(drawn(crosswalk_of_run(path, crosswalk)))
        return
    from guardmark.app.results.reporting import report as write_report

    chosen = _formats(formats)
    for path in runs:
        if choose or guarantee:
            from guardmark.app.results.reporting import choose_thresholds

            limits = _parse_thresholds(choose, option="--choose", meaning="FPR")
            fragment = choose_thresholds(path, limits, guarantee)
            echo_text(fragment.read_text(encoding="utf-8"))
            echo(f"thresholds {fragment}", err=True)
            continue
        thresholds = _parse_thresholds(threshold)
        tell_output(
            write_report(path, formats=chosen, thresholds=thresholds, texts=not no_texts),
            as_json=as_json,
        )


def _parse_thresholds(
    words: Sequence[str], *, option: str = "--threshold", meaning: str = "X"
) -> tuple[tuple[str, float], ...]:
    """Read thresholds, or limits for them, written as NAME=X."""
    thresholds = []
    for word in words:
        name, equals, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not equals or not name or not 0 <= value <= 1:
            raise ConfigError(
                f"{option} {word!r} is not of the form NAME={meaning} with {meaning} in [0, 1].\n"
                f"For example: {option} granite={0.01 if meaning == 'FPR' else 0.8}"
            )
        thresholds.append((name, value))
    return tuple(thresholds)


def _formats(words: str | None) -> tuple[str, ...]:
    chosen = tuple(word.strip() for word in (words or "").split(",") if word.strip())
    for word in chosen:
        if word not in _FORMATS:
            raise UnknownName("report format", word, _FORMATS)
    return chosen


@click.command()
@click.argument("folder", type=_PATH, default="runs")
@click.option("--port", type=_PORT, default=8765, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--allow-remote", is_flag=True)
@click.option("--token-env", default="", metavar="NAME")
@click.option("--no-token", is_flag=True)
@click.option("--name", "names", multiple=True)
@click.option("--no-texts", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def view_command(folder: Path, *, no_texts: bool, as_json: bool, **options: Any) -> None:
    """Show runs in a browser."""
    from guardmark.view.server import ViewOptions, serve

    echo(f"Reading the runs below {folder}", err=True)
    serve(
        ViewOptions(root=folder, texts=not no_texts, **options),
        on_ready=lambda serving: _tell_address(serving, as_json=as_json),
    )


def _tell_address(serving: Serving, *, as_json: bool) -> None:
    if as_json:
        echo_json(json.dumps({"url": serving.url, "runs": serving.runs}))
        return
    echo(f"{serving.runs:,} {'run' if serving.runs == 1 else 'runs'}: {serving.url}")
    if serving.needs_token:
        echo("Open it once with ?token=... behind the address. Ctrl-C ends.")
    elif serving.is_open:
        echo("Without a token: every user of this machine can read these runs. Ctrl-C ends.")
    else:
        echo("The token in the address keeps other users of this machine out. Ctrl-C ends.")


@click.command()
@click.argument("run", type=RunPath(), default="last")
@click.option("--to", "forms", required=True)
@click.option("-o", "--out", type=_PATH)
@click.option("--layer", default="")
@click.option("--json", "as_json", is_flag=True)
def export_command(run: Path, forms: str, out: Path | None, layer: str, as_json: bool) -> None:
    """Write records for other tools."""
    from guardmark.app.results.artefacts import export as write

    chosen = [word.strip() for word in forms.split(",") if word.strip()]
    if out is not None and len(chosen) > 1:
        raise ConfigError("--out names one file, but several formats are asked for.")
    for form in chosen:
        written = write(run, form, out=out, layer=layer)
        if as_json:
            document = {"format": form, "path": str(written.path), "records": written.records}
            echo_json(json.dumps(document))
        else:
            echo(f"{form:<12}{written.path}  {written.records:,} records")


@click.command()
@click.argument("tool")
@click.argument("path", type=_PATH)
@click.option("-o", "--out", type=_PATH)
@click.option("--label", type=click.Choice(["attack", "benign"]))
@click.option("--model", default="")
@click.option("--unsafe", default="", metavar="NAME=VALUE")
@click.option("--no-texts", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def import_command(tool: str, path: Path, *, no_texts: bool, as_json: bool, **typed: Any) -> None:
    """Read a run of another tool."""
    from datetime import UTC, datetime

    from guardmark.app.results.reporting import finish
    from guardmark.app.run.importing import import_run
    from guardmark.core.sample import Label
    from guardmark.interchange.imported import Statements

    out, label = typed.pop("out"), typed.pop("label")
    statements = Statements(label=Label(label) if label else None, **typed)
    imported = import_run(tool, path, now=datetime.now(UTC), out=out, statements=statements)
    for note in imported.notes:
        echo(f"Note: {note}", err=True)
    finished = finish(
        imported.folder, imported.config, formats=imported.config.report, texts=not no_texts
    )
    tell_output(finished, as_json=as_json)


@click.command()
@click.argument("run", type=_PATH)
@click.option("--attacks", type=_COUNT, default=12, show_default=True)
@click.option("--benign", type=_COUNT, default=6, show_default=True)
@click.option("--seeds", type=_SLICES, default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def stability_command(run: Path, attacks: int, benign: int, seeds: int, as_json: bool) -> None:
    """Draw small slices of a run."""
    from guardmark.analysis.pipeline.small_slices import SliceRequest
    from guardmark.app.results.reading import slice_run
    from guardmark.reports.chapters.small_slices import stability_document
    from guardmark.reports.render.json.documents import stability_json

    request = SliceRequest(attacks=attacks, benign=benign, seeds=tuple(range(1, seeds + 1)))
    folder, slices = slice_run(run, request)
    if as_json:
        echo_json(stability_json(slices))
        return
    echo_drawn(drawn(stability_document(slices)))
    echo(f"by variant: {folder.slice_stability_md}")
