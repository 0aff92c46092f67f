"""`guardmark show`: the samples of a run that are worth reading, in the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.bypasses import ListedSample
    from guardmark.app.results.showing import Selection

_EXCERPT = 160
_COUNT = click.IntRange(min=1)


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="List the samples of RUN that are worth reading, worst first: bypasses, false "
        "alarms, errors, malformed answers, or samples on which the defenses differ."
    )
    @click.argument("run", type=click.Path(path_type=Path))
    @click.option("--bypasses", "flaw", flag_value="bypass", help="Attacks that were allowed.")
    @click.option("--false-alarms", "flaw", flag_value="false_alarm", help="Benign, blocked.")
    @click.option("--errors", "flaw", flag_value="error", help="Not answered.")
    @click.option("--malformed", "flaw", flag_value="malformed", help="Not understandable.")
    @click.option("--different", "flaw", flag_value="different", help="The defenses differ.")
    @click.option("--defense", default="", help="Only what this defense got wrong.")
    @click.option("--category", default="", help="Only this category.")
    @click.option("--technique", default="", help="Only this technique.")
    @click.option("--id", "sample_id", default="", help="One sample, in full.")
    @click.option("--limit", type=_COUNT, default=20, show_default=True, help="Most to list.")
    @click.option("--full", is_flag=True, help="Whole texts instead of one line.")
    @click.option("--no-texts", is_flag=True, help="Hashes instead of texts.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
    def show(
        run: Path,
        flaw: str | None,
        defense: str,
        category: str,
        technique: str,
        sample_id: str,
        limit: int,
        full: bool,
        no_texts: bool,
        as_json: bool,
    ) -> None:
        from guardmark.analysis.defense.bypasses import Flaw
        from guardmark.app.results.showing import Selection
        from guardmark.app.results.showing import show as list_samples

        chosen = Selection(
            flaw=Flaw(flaw) if flaw else None,
            defense=defense,
            category=category,
            technique=technique,
            sample_id=sample_id,
        )
        listed = list_samples(run, chosen)
        for each in listed[:limit]:
            if as_json:
                click.echo(json.dumps(_as_json(each, texts=not no_texts), ensure_ascii=False))
            else:
                click.echo(
                    "\n".join(_lines(each, full=full or bool(sample_id), texts=not no_texts))
                )
        if not as_json:
            click.echo(_tail(len(listed), limit, chosen))

    return show


def _tail(total: int, limit: int, chosen: Selection) -> str:
    what = chosen.flaw.value.replace("_", " ") if chosen.flaw else "sample worth reading"
    if total == 0:
        return f"None: no {what}."
    return f"{min(total, limit):,} of {total:,}" + (
        f"; --limit {total} shows them all." if total > limit else "."
    )


def _lines(listed: ListedSample, *, full: bool, texts: bool) -> Iterator[str]:
    from guardmark.cli.terminal import one_line
    from guardmark.reports.document.safe_text import clean, spell_hidden

    sample = listed.sample
    facets = [
        sample.label.value,
        sample.severity.value if sample.severity else "",
        "/".join(part for part in (sample.category, sample.subcategory) if part),
        sample.language,
    ]
    yield clean(f"{sample.id}  {', '.join(facet for facet in facets if facet)}")
    for answer in listed.answers:
        score = "" if answer.score is None else f", score {answer.score:.3f}"
        limit = "" if answer.threshold is None else f" (blocks from {answer.threshold:g})"
        kind = f" ({answer.error_kind})" if answer.error_kind else ""
        flaw = f"  <- {answer.flaw.value.replace('_', ' ')}" if answer.flaw else ""
        outcome = answer.outcome or "not asked"
        yield clean(f"  {answer.defense}: {outcome}{kind}{score}{limit if score else ''}{flaw}")
    if not texts:
        yield f"  sha256 {sample.prompt.digest().hex()}"
    elif full:
        for message in sample.prompt.messages:
            yield f"  [{message.role.value}]"
            yield from (f"    {line}" for line in spell_hidden(message.content).split("\n"))
    else:
        yield f"  {one_line(spell_hidden(sample.prompt.text), _EXCERPT)}"
    yield ""


def _as_json(listed: ListedSample, *, texts: bool) -> dict[str, object]:
    sample = listed.sample
    found: dict[str, object] = {
        "id": sample.id,
        "label": sample.label.value,
        "category": sample.category,
        "subcategory": sample.subcategory,
        "technique": sample.technique,
        "severity": sample.severity.value if sample.severity else None,
        "language": sample.language,
        "group": sample.lineage,
        "sha256": sample.prompt.digest().hex(),
        "flaws": [flaw.value for flaw in listed.flaws],
        "answers": [
            {
                "defense": answer.defense,
                "outcome": answer.outcome or None,
                "score": answer.score,
                "threshold": answer.threshold,
                "error_kind": answer.error_kind or None,
            }
            for answer in listed.answers
        ],
    }
    if texts:
        found["messages"] = [
            {"role": message.role.value, "content": message.content}
            for message in sample.prompt.messages
        ]
    return found
