"""A document by hand with every kind of block, whose every text is hostile."""

from __future__ import annotations

from guardmark.analysis.defense.bypasses import Flaw, SampleAnswer
from guardmark.reports.document.blocks import (
    Bullets,
    Column,
    Document,
    Facts,
    FigureCell,
    FlowChart,
    FlowStream,
    Headline,
    Histogram,
    IntervalChart,
    IntervalMark,
    Line,
    LineChart,
    Listing,
    Paragraph,
    Row,
    SampleBrowser,
    SampleCount,
    SampleEntry,
    Section,
    Table,
    TextCell,
    Tone,
    Unit,
)

PLAIN = "plain"
LOUD = (
    "</script></style></pre></title><script>window.owned=1;alert(1)</script>"
    "<img src=https://evil.example/p.png onerror=window.owned=1>"
    "\"'><svg/onload=window.owned=1><a href=javascript:window.owned=1>{{ 7*7 }}{% raw %}"
    "<!--\x00\x1b[31m\u202e\ud800\ufffe\U000e0041\u2028]]><base href=//evil.example>&lt;"
)


def share(value: float | None, low: float | None = None, high: float | None = None) -> FigureCell:
    """A rate of 100 trials, or an undefined one."""
    if value is None:
        return FigureCell(value=None, unit=Unit.SHARE, trials=0, successes=0, reason="no trials")
    return FigureCell(
        value=value,
        low=low,
        high=high,
        unit=Unit.SHARE,
        trials=100,
        successes=round(100 * value),
    )


def entry(number: int, text: str, excerpt: str, kind: Flaw) -> SampleEntry:
    """One listed sample."""
    findings = (
        SampleAnswer(defense=f"{text}one", outcome="allow", flaw=kind, score=0.25, threshold=0.5),
        SampleAnswer(defense=f"{text}two", outcome="error", flaw=Flaw.ERROR, error_kind=text),
        SampleAnswer(defense=f"{text}floor", outcome="allow", flaw=None),
    )
    return SampleEntry(
        sample_id=f"{text}{number:04d}",
        is_attack=kind is Flaw.BYPASS,
        facets=(("category", f"{text}{number % 3}"), (f"{text}facet", f"v{number % 2}")),
        kinds=(kind, Flaw.DIFFERENT),
        answers=findings,
        excerpt=excerpt,
        characters=len(excerpt) + 7,
        cut=True,
        sha256=f"{number:064x}",
    )


def document(text: str = LOUD, *, listed: int = 120, excerpt: str | None = None) -> Document:
    """A report whose every word is `text`; with another text only words differ."""
    kinds = (Flaw.BYPASS, Flaw.FALSE_ALARM)
    entries = tuple(
        entry(number, text, text if excerpt is None else excerpt, kinds[number % 2])
        for number in range(listed)
    )
    counts = tuple(
        SampleCount(
            kind=kind,
            meaning=text,
            total=5000,
            listed=listed // 2,
            command=f"guardmark show {text}",
        )
        for kind in kinds
    )
    return Document(
        title=text,
        subtitle=text,
        run=text,
        created_utc="2026-01-02T03:04:05Z",
        version="0.1.0",
        confidence=0.95,
        verdicts=(
            Headline(
                defense=f"{text}one",
                sentence="blocks 91.2 % [88.4, 93.4] of 500 attacks, wrongly blocks 3.1 % "
                "[1.9, 5.0] of 600 benign; 4 malformed, 0 errors",
                notes=(text,),
            ),
            Headline(
                defense=f"{text}two",
                sentence=text,
            ),
            Headline(
                defense=f"{text}floor",
                sentence="blocks 0.0 % [0.0, 0.8] of 500 attacks",
                baseline=True,
            ),
        ),
        sections=(
            _words(text),
            _charts(text),
            Section(
                id="worst",
                title=f"{text} worst",
                blocks=(SampleBrowser(id="samples", title=text, entries=entries, counts=counts),),
            ),
            Section(
                id="adaptive",
                title=f"{text} adaptive",
                blocks=(Paragraph(text=text, tone=Tone.MUTED),),
                empty=True,
            ),
        ),
    )


def _words(text: str) -> Section:
    columns = (
        Column(title=text),
        Column(title=text, numeric=True, meaning=text),
        Column(title="n", numeric=True),
        Column(title="p95", numeric=True),
    )
    slow = FigureCell(
        value=1200.0, low=900.0, high=None, unit=Unit.MILLISECONDS, trials=9, at_least=True
    )
    rows = (
        Row(cells=(TextCell(text=text, code=True), share(0.5, 0.4, 0.6), TextCell(text="9"), slow)),
        Row(
            cells=(TextCell(text=text), share(None), TextCell(text="0", tone=Tone.BAD), slow),
            greyed=True,
        ),
        Row(
            cells=(TextCell(text=text), share(0.0, 0.0, 0.04), TextCell(text="8"), slow),
            tone=Tone.MUTED,
        ),
    )
    return Section(
        id="summary",
        title=f"{text} summary",
        blocks=(
            Paragraph(text=text, tone=Tone.WARNING),
            Bullets(lines=(text,), tone=Tone.WARNING),
            Bullets(lines=(text, text)),
            Bullets(lines=()),
            Facts(title=text, pairs=((text, TextCell(text=text, code=True)),)),
            Listing(id="lines", title=text, lines=(text, f"  {text}")),
            Table(id="open", title=text, columns=columns, rows=rows, note=text),
            Table(id="folded", title=text, columns=columns, rows=rows, collapsed=True),
            Table(id="bare", title=text, columns=columns, rows=(), collapsed=True),
        ),
    )


def _charts(text: str) -> Section:
    marks = tuple(
        IntervalMark(
            label=f"{text}{label}", measure=measure, series=f"{text}{series}", note=f"n{text}"
        )
        for label, measure in (("a", share(0.3, 0.2, 0.4)), ("b", share(None)))
        for series in ("one", "two")
    )
    few = tuple(
        IntervalMark(
            label=f"{text}few{number}",
            measure=FigureCell(
                value=0.0, low=0.0, high=0.8, unit=Unit.SHARE, trials=1, greyed=True
            ),
            series=f"{text}one",
        )
        for number in range(9)
    )
    gap = FigureCell(value=-0.06, low=-0.09, high=-0.03, unit=Unit.POINTS, trials=80)
    return Section(
        id="charts",
        title=f"{text} charts",
        blocks=(
            IntervalChart(
                id="intervals", title=text, unit=Unit.SHARE, axis=text, marks=(*marks, *few)
            ),
            IntervalChart(
                id="differences",
                title=text,
                unit=Unit.POINTS,
                axis=text,
                marks=(IntervalMark(label=text, measure=gap),),
                reference=(0.0, text),
            ),
            LineChart(
                id="curves",
                title=text,
                x_axis=text,
                y_axis=text,
                lines=(
                    Line(
                        label=f"{text}one",
                        points=((0.0, 0.0), (0.2, 0.7), (1.0, 1.0)),
                        band=((0.0, 0.1), (0.6, 0.8), (0.9, 1.0)),
                    ),
                    Line(label=f"{text}two", points=((0.1, 0.5),)),
                ),
                diagonal=True,
                summary=text,
            ),
            FlowChart(
                id="flow",
                title=text,
                stages=(text, "model"),
                streams=(
                    FlowStream(
                        name=text,
                        total=9,
                        reached=(9, 5, 5),
                        leaving=(("4 stopped",), ()),
                        ends=(text,),
                    ),
                    FlowStream(
                        name="none",
                        total=0,
                        reached=(0, 0, 0),
                        leaving=((), ()),
                        ends=("0 helped",),
                    ),
                ),
            ),
            Histogram(
                id="scores",
                title=text,
                axis=text,
                unit=Unit.NUMBER,
                edges=(0.0, 0.5, 1.0),
                series=((text, (3, 9)), ("none", (0, 0))),
            ),
            Histogram(
                id="times",
                title=text,
                axis=text,
                unit=Unit.MILLISECONDS,
                edges=(0.5, 5.0, 50.0, 500.0),
                series=((text, (3, 0, 9)),),
                logarithmic=True,
            ),
        ),
    )
