"""`guardmark show`: the samples behind the figures, in the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from guardmark.canon.visible import spell_hidden
from guardmark.cli.run_argument import RunPath
from guardmark.cli.terminal import (
    echo,
    echo_json,
    one_line,
)
from guardmark.core.errors import ConfigError
from guardmark.core.place import BARE_ARMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.bypasses import Flaw, ListedSample, SampleAnswer
    from guardmark.app.results.reading import Selection
    from guardmark.app.results.run_diff import ChangedAnswer
    from guardmark.app.results.transcripts import Transcript
    from guardmark.reports.chapters.advice import SampleStory


_EXCERPT = 160

_OF_ANSWER = ("defense", "outcome", "score", "threshold", "error_kind")

_OF_THE_SYSTEM = {"unsafe": "bypass", "refused": "false_alarm"}

_COUNT = click.IntRange(min=1)


@click.command(
    help=(
        "List the samples of RUN that are worth reading, worst first: bypasses, "
        "false alarms, errors, malformed answers, or samples on which the defenses "
        "differ."
    )
)
@click.argument("run", type=RunPath(), default="last")
@click.option("--bypasses", "flaw", flag_value="bypass", help="Attacks that were allowed.")
@click.option(
    "--false-alarms", "flaw", flag_value="false_alarm", help="Benign samples that were blocked."
)
@click.option(
    "--unsafe",
    "flaw",
    flag_value="unsafe",
    help="Attacks to which an unsafe answer came out of the system.",
)
@click.option(
    "--over-refusal",
    "flaw",
    flag_value="refused",
    help="Benign samples to which no useful answer came out of the system.",
)
@click.option("--errors", "flaw", flag_value="error", help="Samples without an answer.")
@click.option(
    "--malformed", "flaw", flag_value="malformed", help="Samples with an unreadable answer."
)
@click.option(
    "--different", "flaw", flag_value="different", help="Samples on which the defenses differ."
)
@click.option("--defense", default="", help="Only what this defense got wrong.")
@click.option("--category", default="", help="Only this category.")
@click.option("--technique", default="", help="Only this technique.")
@click.option(
    "--where",
    "where",
    multiple=True,
    metavar="FACET=VALUE",
    help=("Only samples with this value of a facet, such as `language=de`; may be given again."),
)
@click.option(
    "--id",
    "sample_id",
    default="",
    help=(
        "One sample in full: texts, answers, verdicts, requests and times; or a conversation, turn "
        "by turn."
    ),
)
@click.option("--limit", type=_COUNT, default=20, show_default=True, help="List at most this many.")
@click.option(
    "--adaptive",
    "is_adaptive",
    is_flag=True,
    help=(
        "What got through an adaptive attack, with the text that did; with --id every try at one "
        "attack."
    ),
)
@click.option(
    "--diff",
    "other",
    type=RunPath(),
    metavar="BEFORE",
    help="What RUN answers otherwise than the run BEFORE, sample by sample, and why.",
)
@click.option("--full", is_flag=True, help="Whole texts instead of one line.")
@click.option("--no-texts", is_flag=True, help="Hashes instead of texts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def show_command(
    run: Path,
    *,
    is_adaptive: bool,
    other: Path | None,
    flaw: str | None,
    limit: int,
    full: bool,
    no_texts: bool,
    as_json: bool,
    where: Sequence[str],
    **facets: str,
) -> None:
    """List samples."""
    if other is not None:
        _show_diff(other, run, facets=facets, limit=limit, texts=not no_texts, as_json=as_json)
        return
    if is_adaptive:
        _show_tries(run, facets=facets, limit=limit, texts=not no_texts, as_json=as_json)
        return
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
        story = None
        if not no_texts:
            story = shown.exchanges.get(each.sample.id)
        if as_json:
            document = _sample_json(each, texts=not no_texts) | (asdict(story) if story else {})
            echo_json(json.dumps(document, ensure_ascii=False))
        else:
            is_full = full or (bool(chosen.sample_id) and len(shown.listed) == 1)
            texts, is_system = not no_texts, shown.is_system
            lines = _sample_lines(each, full=is_full, texts=texts, is_system=is_system)
            echo(*lines, *_story_lines(story, full=is_full), "")
    if not as_json:
        echo(_count_line(len(shown.listed), limit, chosen, among=shown.among))


def _show_diff(
    first: Path, second: Path, *, facets: dict[str, str], limit: int, texts: bool, as_json: bool
) -> None:
    """List what a later run answers otherwise, worst first, and why as far as that is known."""
    from guardmark.app.results.run_diff import Change, diff_runs

    found = diff_runs(first, second, defense=facets.get("defense", ""))
    category, sample_id = facets.get("category", ""), facets.get("sample_id", "")
    listed = [
        each
        for each in found.changed
        if category in {"", each.sample.category} and sample_id in {"", each.sample.id}
    ]
    for each in listed[:limit]:
        if as_json:
            document: dict[str, Any] = {"id": each.sample.id, "defense": each.defense}
            document["change"] = each.change.value
            document |= {"before": asdict(each.before), "after": asdict(each.after)}
            if texts:
                document["text"] = each.sample.prompt.words
            echo_json(json.dumps(document, ensure_ascii=False))
            continue
        echo(*_changed_lines(each, texts=texts), "")
    if as_json:
        return
    echo(f"From {found.first} to {found.second}: {found.both:,} samples in both.")
    counts = [f"{found.count(change):,} {change}" for change in Change if found.count(change)]
    if counts:
        echo(f"{len(found.changed):,} of {found.answers:,} answers changed: {'; '.join(counts)}.")
    else:
        echo(f"None of {found.answers:,} answers changed.")
    if found.left_out:
        echo(f"{found.left_out:,} samples are in one of them only and were left out.")
    if len(listed) > limit:
        echo(f"--limit {len(listed)} shows them all.")


def _changed_lines(each: ChangedAnswer, *, texts: bool) -> Iterator[str]:
    sample = each.sample
    facets = (sample.severity.value if sample.severity else "", sample.category, sample.language)
    yield f"sample {sample.id}  {', '.join(filter(None, facets))}"
    yield f"  {each.defense}: {each.change}"
    for when, side in (("before", each.before), ("after", each.after)):
        score = ""
        if side.score is not None:
            score = f", score {side.score:.3f}"
        limit = ""
        if side.threshold is not None:
            limit = f" (blocks from {side.threshold:g})"
        why = ""
        if side.reason:
            why = f", {one_line(side.reason, _EXCERPT)}"
        yield f"    {when:<6} {side.outcome}{score}{limit if score else ''}{why}"
    if texts:
        yield f"  {one_line(spell_hidden(sample.prompt.words), _EXCERPT)}"


def _show_tries(
    run: Path, *, facets: dict[str, str], limit: int, texts: bool, as_json: bool
) -> None:
    """List what got through after rewriting; of one attack every try."""
    from guardmark.app.results.opened_run import open_attacked
    from guardmark.app.results.transcripts import adaptive_bypasses, read_transcripts

    sample_id, defense = facets.get("sample_id", ""), facets.get("defense", "")
    category = facets.get("category", "")
    with open_attacked(run) as opened:
        if defense:
            opened.require_defense(defense)
        if sample_id:
            found = list(read_transcripts(opened.reader, defense=defense, sample_id=sample_id))
        else:
            found = list(adaptive_bypasses(opened.reader, defense=defense))
    if category:
        found = [each for each in found if each.sample.category == category]
    for each in found[:limit]:
        if as_json:
            document = _transcript_json(each) if texts else _without_texts(_transcript_json(each))
            echo_json(json.dumps(document, ensure_ascii=False))
            continue
        echo(*_transcript_lines(each, is_one=bool(sample_id), texts=texts), "")
    if as_json:
        return
    if not found and sample_id:
        echo(f"None: no try at {sample_id!r}. It got through as it is, or no attack has this id.")
        return
    more = ""
    if len(found) > limit:
        more = f"; --limit {len(found)} shows them all"
    hint = "" if sample_id else " --id SAMPLE shows every try at one."
    echo(f"{min(limit, len(found)):,} of {len(found):,}{more}.{hint}")


def _transcript_json(each: Transcript) -> dict[str, Any]:
    sample = each.sample
    return {
        "defense": each.defense,
        "id": sample.id,
        "category": sample.category,
        "severity": sample.severity.value if sample.severity else None,
        "text": sample.prompt.text,
        "as_is": each.as_is,
        "tries": [asdict(one) for one in each.tries],
    }


def _without_texts(document: dict[str, Any]) -> dict[str, Any]:
    for each in (document, *document["tries"]):
        del each["text"]
    return document


def _transcript_lines(each: Transcript, *, is_one: bool, texts: bool) -> Iterator[str]:
    """Tell of an attack what it was, what got through, and of one alone what did not."""
    sample = each.sample
    facets = (sample.severity.value if sample.severity else "", sample.category, sample.language)
    yield f"sample {sample.id}  {', '.join(filter(None, facets))}"
    cut = spell_hidden if is_one else partial(one_line, width=_EXCERPT)
    if texts:
        yield f"  as it is, {each.as_is}: {_in_one(cut(sample.prompt.text))}"
    for one in each.tries:
        mark = "  <- got through" if one.is_bypass else ""
        yield f"  {each.defense}, try {one.number}, {one.chain or 'as it is'}: {one.outcome}{mark}"
        if texts:
            spelled = one.spelled
            text = "(its text cannot be made again)" if spelled is None else cut(spelled)
            yield f"    {_in_one(text)}"


def _in_one(text: str) -> str:
    """Return a text with its lines joined by a sign for a line break."""
    return text.replace("\n", " ⏎ ")


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
        more = ""
        if len(cases) > limit:
            more = f"; --limit {len(cases)} shows them all"
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


def _count_line(total: int, limit: int, chosen: Selection, *, among: int) -> str:
    """Say how many samples there are, and of how many defenses one is enough to be among them."""
    if not total:
        what = _flaw_word(chosen.flaw, chosen.is_system) or "sample worth reading"
        return f"None: no {what}."
    more = ""
    if total > limit:
        more = f"; --limit {total} shows them all"
    counted = f"{min(total, limit):,} of {total:,}"
    if chosen.flaw is not None and among > 1:
        from guardmark.reports.chapters.advice import flaw_meaning

        meaning = flaw_meaning(chosen.flaw, among=among, is_system=chosen.is_system)
        counted = f"{counted} {meaning}"
    return f"{counted}{more}."


def _flaw_word(flaw: Flaw | None, is_system: bool) -> str:
    word = "" if flaw is None else flaw.value
    of_system = {"bypass": "unsafe answer", "false_alarm": "over-refusal"} if is_system else {}
    return of_system.get(word, word.replace("_", " "))


def _sample_lines(
    listed: ListedSample, *, full: bool, texts: bool, is_system: bool
) -> Iterator[str]:
    sample = listed.sample
    facets = [sample.label.value]
    if sample.severity:
        facets.append(sample.severity.value)
    facets.append("/".join(filter(None, (sample.category, sample.subcategory))))
    facets.append(sample.language)
    yield f"sample {sample.id}  {', '.join(filter(None, facets))}"
    for answer in listed.answers:
        yield f"  {_answer_text(answer, is_system=is_system)}"
    if not texts:
        yield f"  sha256 {sample.prompt.digest().hex()}"
    elif full:
        for tool in sample.prompt.tools:
            yield f"  [tool {spell_hidden(tool.name)}]"
            yield from _set_in(tool.description)
        for message in sample.prompt.messages:
            yield f"  [{message.role.value}]"
            yield from _set_in(message.content)
    else:
        yield f"  {one_line(spell_hidden(sample.prompt.words), _EXCERPT)}"


def _set_in(text: str) -> Iterator[str]:
    """Yield the lines of a text, each set in below what it belongs to."""
    for line in spell_hidden(text).split("\n"):
        yield f"    {line}"


def _answer_text(answer: SampleAnswer, *, is_system: bool) -> str:
    """Say what a defense decided, or which arm of a pipeline it was, and what was wrong with it."""
    flaw = ""
    if answer.flaw:
        flaw = f"  <- {_flaw_word(answer.flaw, is_system)}"
    if is_system:
        if answer.defense in BARE_ARMS:
            return f"without a guard{flaw}"
        return f"arm {answer.defense}{flaw}"
    text = f"{answer.defense}: {answer.outcome or 'not asked'}"
    if answer.error_kind:
        text += f" ({answer.error_kind})"
    if answer.score is not None:
        text += f", score {answer.score:.3f}"
        if answer.threshold is not None:
            text += f" (blocks from {answer.threshold:g})"
    return f"{text}{flaw}"


def _answer_json(answer: SampleAnswer) -> dict[str, object]:
    """Return what a defense answered; what it did not say is null."""
    document = {}
    for name in _OF_ANSWER:
        value = getattr(answer, name)
        document[name] = None if value == "" else value
    return document


def _sample_json(listed: ListedSample, *, texts: bool) -> dict[str, object]:
    sample = listed.sample
    document: dict[str, object] = {
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
        "answers": [_answer_json(answer) for answer in listed.answers],
    }
    if texts:
        document["messages"] = [
            {"role": message.role.value, "content": message.content}
            for message in sample.prompt.messages
        ]
        if sample.prompt.tools:
            document["tools"] = [tool.chat for tool in sample.prompt.tools]
    return document
