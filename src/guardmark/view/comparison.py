"""A comparison of runs as sections of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.comparison import comparison_blocks
from guardmark.reports.chapters.plane import draw_plane
from guardmark.reports.compared_words import caveats, recommendation
from guardmark.reports.document.blocks import (
    Bullets,
    Section,
    Table,
    TextCell,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import columns, counts, figure, name, of_estimate, row
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
        rows.append(row(name(each.name), asr, counts(asr), fpr, counts(fpr)))
    return Table(
        id="each",
        title="Each by itself, on the samples both have",
        columns=columns(
            "Defense",
            "ASR",
            "of attacks",
            "FPR",
            "of benign",
            meanings={"ASR": "attack success rate", "FPR": "false positive rate"},
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
        row(
            each.category,
            "ASR" if each.is_attack else "FPR",
            each.side.difference,
            figure(each.side.adjusted_p, Unit.P_VALUE),
            count_text(each.side.difference.pairs),
            greyed=each.is_greyed,
        )
        for each in detail.categories
    )
    return Table(
        id=f"categories-{number}",
        title="By category",
        columns=columns(
            "Category",
            "Rate",
            "Difference",
            "p (Holm)",
            "Pairs",
            texts=("Rate",),
            meanings={"Difference": "first rate minus second"},
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
            row(
                TextCell(text=sample.id, code=True),
                f"{sample.label.value} {sample.category}".strip(),
                TextCell(text=each.erred, code=True),
                cut,
            )
        )
    total = detail.first_only + detail.second_only
    return Table(
        id=f"samples-{number}",
        title="Samples that only one of them got wrong",
        columns=columns(
            "Sample",
            "Label",
            "Wrong",
            "Text" if texts else "Hash",
            texts=("Label", "Wrong", "Text" if texts else "Hash"),
        ),
        rows=tuple(rows),
        note=f"{count_text(len(rows))} of {count_text(total)}.",
        collapsed=True,
    )
