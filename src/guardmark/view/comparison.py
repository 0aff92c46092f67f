"""A comparison of runs as sections of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.comparison import comparison_blocks
from guardmark.reports.chapters.plane import draw_plane
from guardmark.reports.compared_words import caveats, recommendation
from guardmark.reports.document.blocks import (
    Bullets,
    Column,
    Row,
    Section,
    Table,
    TextCell,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import counts, figure, name, of_difference, of_estimate
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.compare.compared import Compared
    from guardmark.analysis.compare.paired_details import PairDetail
    from guardmark.reports.document.blocks import Block

_EXCERPT: Final = 300


def comparison_sections(compared: Compared, *, texts: bool) -> tuple[Section, ...]:
    """Tell a comparison."""
    blocks: list[Block] = []
    beware = tuple(caveats(compared))
    if beware:
        blocks.append(Bullets(lines=beware, tone=Tone.WARNING))
    blocks.append(
        Bullets(
            lines=tuple(
                recommendation(pair, margin=compared.margin) for pair in compared.comparison.pairs
            )
        )
    )
    sentences, *differences = comparison_blocks(compared.comparison)
    plane = draw_plane(((each.name, each.rates) for each in compared.rates), compared.front)
    drawn = () if plane is None else (plane,)
    told = (sentences, _rates(compared), *drawn, *differences)
    rates = Section(id="rates", title="Rates", blocks=told)
    return (
        Section(id="advice", title="What follows", blocks=tuple(blocks)),
        rates,
        *(
            _pair(number, detail, texts=texts)
            for number, detail in enumerate(compared.details, start=1)
        ),
    )


def _rates(compared: Compared) -> Table:
    rows = []
    for each in compared.rates:
        asr = of_estimate(each.rates.attack_success_rate)
        fpr = of_estimate(each.rates.false_positive_rate)
        rows.append(Row(cells=(name(each.name), asr, counts(asr), fpr, counts(fpr))))
    return Table(
        id="each",
        title="Each by itself, on the samples both have",
        columns=(
            Column(title="Defense"),
            Column(title="ASR", numeric=True, meaning="attack success rate"),
            Column(title="of attacks", numeric=True),
            Column(title="FPR", numeric=True, meaning="false positive rate"),
            Column(title="of benign", numeric=True),
        ),
        rows=tuple(rows),
    )


def _pair(number: int, detail: PairDetail, *, texts: bool) -> Section:
    blocks: list[Block] = []
    if detail.categories:
        blocks.append(_categories(number, detail))
    if detail.discordant:
        blocks.append(_samples(number, detail, texts=texts))
    if not blocks:
        blocks.append(Bullets(lines=("Both agree on every sample.",), tone=Tone.MUTED))
    title = f"{detail.first} against {detail.second}"
    return Section(id=f"pair-{number}", title=title, blocks=tuple(blocks))


def _categories(number: int, detail: PairDetail) -> Table:
    rows = tuple(
        Row(
            cells=(
                TextCell(text=each.category),
                TextCell(text="ASR" if each.is_attack else "FPR"),
                of_difference(each.side.difference),
                figure(each.side.adjusted_p, Unit.P_VALUE),
                TextCell(text=count_text(each.side.difference.pairs)),
            ),
            greyed=each.is_greyed,
        )
        for each in detail.categories
    )
    return Table(
        id=f"categories-{number}",
        title="By category",
        columns=(
            Column(title="Category"),
            Column(title="Rate"),
            Column(title="Difference", numeric=True, meaning="first rate minus second"),
            Column(title="p (Holm)", numeric=True),
            Column(title="Pairs", numeric=True),
        ),
        rows=rows,
        collapsed=True,
    )


def _samples(number: int, detail: PairDetail, *, texts: bool) -> Table:
    rows = []
    for each in detail.discordant:
        sample = each.sample
        text = sample.prompt.text if texts else f"sha256 {sample.prompt.digest().hex()}"
        cut = text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1]}…"
        rows.append(
            Row(
                cells=(
                    TextCell(text=sample.id, code=True),
                    TextCell(text=f"{sample.label.value} {sample.category}".strip()),
                    TextCell(text=each.erred, code=True),
                    TextCell(text=cut),
                )
            )
        )
    total = detail.first_only + detail.second_only
    return Table(
        id=f"samples-{number}",
        title="Samples that only one of them got wrong",
        columns=(
            Column(title="Sample"),
            Column(title="Label"),
            Column(title="Wrong"),
            Column(title="Text" if texts else "Hash"),
        ),
        rows=tuple(rows),
        note=f"{count_text(len(rows))} of {count_text(total)}.",
        collapsed=True,
    )
