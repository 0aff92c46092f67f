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
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.bypasses import Flaw, ListedSample, SampleAnswer
    from guardmark.app.results.reading import Selection
    from guardmark.app.results.run_diff import ChangedAnswer
    from guardmark.app.results.transcripts import Transcript
    from guardmark.core.sample import Sample
    from guardmark.reports.chapters.samples import SampleStory


_EXCERPT = 160

_OF_ANSWER = ("defense", "outcome", "score", "threshold", "error_kind")

_OF_THE_SYSTEM = {"unsafe": "bypass", "refused": "false_alarm"}
_FLAWS_OF_SYSTEM = {"bypass": "unsafe answer", "false_alarm": "over-refusal"}

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

    wanted = None
    if flaw:
        wanted = Flaw(_OF_THE_SYSTEM.get(flaw, flaw))
    chosen = Selection(
        flaw=wanted,
        is_system=flaw in _OF_THE_SYSTEM,
        where=tuple(map(_facet_and_value, where)),
        **facets,
    )
    shown = list_samples(run, chosen, most=limit)
    is_full = full or (bool(chosen.sample_id) and len(shown.listed) == 1)
    texts = not no_texts
    for each in shown.listed[:limit]:
        story = None
        if texts:
            story = shown.exchanges.get(each.sample.id)
        if as_json:
            document = _sample_json(each, texts=texts)
            if story is not None:
                document |= asdict(story)
            echo_json(json.dumps(document, ensure_ascii=False))
        else:
            lines = _sample_lines(each, full=is_full, texts=texts, is_system=shown.is_system)
            echo(*lines, *_story_lines(story, full=is_full), "")
    if not as_json:
        echo(_count_line(len(shown.listed), limit, chosen, among=shown.among))


def _show_diff(
    first: Path, second: Path, *, facets: dict[str, str], limit: int, texts: bool, as_json: bool
) -> None:
    """List what a later run answers otherwise, worst first, and why as far as that is known."""
    from guardmark.app.results.run_diff import Change, diff_runs

    diff = diff_runs(first, second, defense=facets.get("defense", ""))
    category, sample_id = facets.get("category", ""), facets.get("sample_id", "")
    listed = []
    for each in diff.changed:
        if category in {"", each.sample.category} and sample_id in {"", each.sample.id}:
            listed.append(each)
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
    echo(f"From {diff.first} to {diff.second}: {diff.both:,} samples in both.")
    counts = [f"{diff.count(change):,} {change}" for change in Change if diff.count(change)]
    if counts:
        echo(f"{len(diff.changed):,} of {diff.answers:,} answers changed: {'; '.join(counts)}.")
    else:
        echo(f"None of {diff.answers:,} answers changed.")
    if diff.left_out:
        echo(f"{diff.left_out:,} samples are in one of them only and were left out.")
    if len(listed) > limit:
        echo(f"--limit {len(listed)} shows them all.")


def _sample_head(sample: Sample) -> str:
    """Name a sample and what it is."""
    facets = []
    if sample.severity:
        facets.append(sample.severity.value)
    if sample.category:
        facets.append(sample.category)
    if sample.language:
        facets.append(sample.language)
    return f"sample {sample.id}  {', '.join(facets)}"


def _severity_of(sample: Sample) -> str | None:
    if sample.severity is None:
        return None
    return sample.severity.value


def _changed_lines(each: ChangedAnswer, *, texts: bool) -> Iterator[str]:
    """Tell of one sample what was answered before and what is answered now."""
    sample = each.sample
    yield _sample_head(sample)
    yield f"  {each.defense}: {each.change}"
    for when, side in (("before", each.before), ("after", each.after)):
        answer = side.outcome
        if side.score is not None:
            answer += f", score {side.score:.3f}"
        if side.score is not None and side.threshold is not None:
            answer += f" (blocks from {side.threshold:g})"
        if side.reason:
            answer += f", {one_line(side.reason, _EXCERPT)}"
        yield f"    {when:<6} {answer}"
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
            attacks = list(read_transcripts(opened.reader, defense=defense, sample_id=sample_id))
        else:
            attacks = list(adaptive_bypasses(opened.reader, defense=defense))
    if category:
        attacks = [each for each in attacks if each.sample.category == category]
    for each in attacks[:limit]:
        if not as_json:
            echo(*_transcript_lines(each, is_one=bool(sample_id), texts=texts), "")
            continue
        document = _transcript_json(each)
        if not texts:
            document = _without_texts(document)
        echo_json(json.dumps(document, ensure_ascii=False))
    if not as_json:
        echo(_tries_line(len(attacks), limit, sample_id))


def _tries_line(count: int, limit: int, sample_id: str) -> str:
    """Say how many attacks are shown, and how to see more of them."""
    if not count and sample_id:
        return f"None: no try at {sample_id!r}. It got through as it is, or no attack has this id."
    more, hint = "", " --id SAMPLE shows every try at one."
    if count > limit:
        more = f"; --limit {count} shows them all"
    if sample_id:
        hint = ""
    return f"{min(limit, count):,} of {count:,}{more}.{hint}"


def _transcript_json(each: Transcript) -> dict[str, Any]:
    sample = each.sample
    return {
        "defense": each.defense,
        "id": sample.id,
        "category": sample.category,
        "severity": _severity_of(sample),
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
    yield _sample_head(sample)
    cut: Callable[[str], str] = partial(one_line, width=_EXCERPT)
    if is_one:
        cut = spell_hidden
    if texts:
        yield f"  as it is, {each.as_is}: {_in_one(cut(sample.prompt.text))}"
    for one in each.tries:
        line = f"  {each.defense}, try {one.number}, {one.chain or 'as it is'}: {one.outcome}"
        if one.is_bypass:
            line += "  <- got through"
        yield line
        if not texts:
            continue
        if one.spelled is None:
            yield "    (its text cannot be made again)"
        else:
            yield f"    {_in_one(cut(one.spelled))}"


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
            story = [f"  {head}: {text}" for head, text in case.story]
            echo(*story, "")
    if not as_json:
        more, hint = "", " --id CASE tells one step by step."
        if len(cases) > limit:
            more = f"; --limit {len(cases)} shows them all"
        if chosen.case_id:
            hint = ""
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
    if story is None:
        return
    steps = list(story.steps)
    if story.answer != "":
        steps.insert(0, ("Answer", story.answer or "none came"))
    for who, text in steps:
        if full:
            shown = spell_hidden(text)
        else:
            shown = one_line(text, _EXCERPT)
        first, *more = shown.split("\n")
        yield f"  {who}: {first}"
        for line in more:
            yield f"    {line}"


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
        from guardmark.reports.chapters.samples import flaw_meaning

        meaning = flaw_meaning(chosen.flaw, among=among, is_system=chosen.is_system)
        counted = f"{counted} {meaning}"
    return f"{counted}{more}."


def _flaw_word(flaw: Flaw | None, is_system: bool) -> str:
    """Name a flaw as a reader calls it: of a system by what came out; empty without one."""
    if flaw is None:
        return ""
    words = flaw.value.replace("_", " ")
    if is_system:
        return _FLAWS_OF_SYSTEM.get(flaw.value, words)
    return words


def _sample_lines(
    listed: ListedSample, *, full: bool, texts: bool, is_system: bool
) -> Iterator[str]:
    """Tell one sample: what it is, its text or hash, and what each defense answered."""
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
        if value == "":
            value = None
        document[name] = value
    return document


def _sample_json(listed: ListedSample, *, texts: bool) -> dict[str, object]:
    """Return one sample with its answers; texts only where they are wanted."""
    sample = listed.sample
    document: dict[str, object] = {
        "id": sample.id,
        "label": sample.label.value,
        "category": sample.category,
        "subcategory": sample.subcategory,
        "technique": sample.technique,
        "severity": _severity_of(sample),
        "language": sample.language,
        "group": sample.lineage,
        "sha256": sample.prompt.digest().hex(),
        "flaws": [flaw.value for flaw in listed.flaws],
        "answers": [_answer_json(answer) for answer in listed.answers],
    }
    if texts:
        messages = []
        for message in sample.prompt.messages:
            messages.append({"role": message.role.value, "content": message.content})
        document["messages"] = messages
        if sample.prompt.tools:
            document["tools"] = [tool.chat for tool in sample.prompt.tools]
    return document
