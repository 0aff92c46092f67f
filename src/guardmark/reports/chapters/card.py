"""A guard card in words: the answer, the figures, what they rest on, and what they leave open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.cards.card import Gap
from guardmark.analysis.cards.claims import CLAIMED, Standing
from guardmark.analysis.cards.figures import MILLISECONDS, MONEY, SHARE
from guardmark.analysis.pipeline.frame import SYSTEM
from guardmark.reports.document.blocks import (
    Document,
    Facts,
    FigureCell,
    IntervalChart,
    IntervalMark,
    Listing,
    Unit,
    muted,
    section,
    warning,
)
from guardmark.reports.document.cells import name, table_of, words
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import count_text, counts_text, measure_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.cards.card import Card, CardFramework
    from guardmark.analysis.cards.claims import MakerClaim
    from guardmark.analysis.cards.figures import CardFigure
    from guardmark.reports.document.blocks import Section, TextCell

_UNITS: Final = {SHARE: Unit.SHARE, MILLISECONDS: Unit.MILLISECONDS, MONEY: Unit.NUMBER}
_MOST_SLICES: Final = 8
_MOST_SETTINGS: Final = 8
_MOST_VALUE: Final = 120
_DIGEST: Final = 12

_TITLES: Final = {
    "attack_success_rate": "Attacks let through (ASR)",
    "true_positive_rate": "Attacks blocked (TPR, recall)",
    "false_positive_rate": "Benign inputs blocked (FPR)",
    "answered": "Inputs that got a decision",
    "balanced_error": "Balanced error (mean of ASR and FPR)",
    "precision": "Blocked inputs that are attacks (precision, at this mix)",
    "f1": "F1 (at this mix)",
    "cost_per_1000": "Cost of 1,000 inputs",
}
_ONLY_IN_JSON: Final = {
    "latency_p99_ms_attacks",
    "latency_p99_ms_benign",
    "latency_p50_ms_benign",
    "latency_p95_ms_benign",
    "true_positive_rate",
    "precision",
}
_OF_SYSTEM: Final = {
    "attack_success_rate": "Attacks that did harm (ASR)",
    "false_positive_rate": "Benign inputs refused (FPR)",
    "answered": "Inputs whose outcome is known",
}

_ANSWERS: Final = {
    "Rely": "On samples like these it may be relied on, within the limits below.",
    "Not enough alone": "It helps, and is not enough on its own.",
    "Do not rely": "It does not tell attacks from benign inputs well enough.",
    "Not enough data": "The data cannot carry an answer.",
}

_OF_GUARD: Final = (
    "A guard decides whether a text may go on to an AI model. This card tells how often it lets an "
    "attack through and how often it blocks a harmless input."
)
_OF_AN_ARM: Final = (
    "Measured is a whole system: guards around an AI model. This card tells how often an attack "
    "does harm and how often a harmless input is refused."
)

_GAPS: Final = {
    Gap.NO_ADAPTIVE: "Attackers who rewrite their texts and watch the answers (guardmark adapt).",
    Gap.NO_SYSTEM: "Whether harm comes out of a model behind it: this is the guard by itself.",
    Gap.NO_REPEATS: "Whether it answers the same when asked again: each input was sent once.",
    Gap.NO_COST: "What it costs: no prices were stated.",
    Gap.NO_LANGUAGES: "Which languages it reads: the data do not state any.",
    Gap.ONE_LANGUAGE: "Other languages than the one of the data.",
    Gap.NOT_FINISHED: "The rest of a run that did not come to its end.",
    Gap.NO_BENIGN: "False alarms: there were no benign inputs.",
    Gap.NO_ATTACKS: "Attacks: there were none.",
}

_STANDINGS: Final = {
    Standing.WITHIN: "the measured interval holds it",
    Standing.ABOVE: "claimed is more than was measured",
    Standing.BELOW: "claimed is less than was measured",
    Standing.NOT_MEASURED: "not measured here",
}


def card_document(card: Card) -> Document:
    """Write a card as a document."""
    sections = (
        _answer(card),
        _blind_spots(card),
        _left_open(card),
        _claims(card),
        _categories(card),
        _robustness(card),
        _crosswalk(card),
        _terms(card),
    )
    data_sets = ", ".join(f"{each.name} {each.version}".strip() for each in card.data)
    day = card.run.created_utc[:10]
    return Document(
        title=f"Guard card: {plain_line(card.subject.name)}",
        subtitle=(
            f"{_subject_text(card)}; measured {day} on {plain_line(data_sets)}; "
            f"cohort {card.cohort.key}"
        ),
        sections=tuple(each for each in sections if each is not None),
        run=card.run.name,
        created_utc=card.run.created_utc,
        version=card.made_by,
        confidence=card.policy.confidence,
    )


def cell_of(figure: CardFigure | None) -> FigureCell:
    """Turn a figure of a card into a cell."""
    if figure is None:
        return FigureCell(value=None, unit=Unit.SHARE, reason="not measured")
    return FigureCell(
        value=figure.value,
        unit=_UNITS.get(figure.unit, Unit.NUMBER),
        low=figure.low,
        high=figure.high,
        successes=figure.successes,
        trials=figure.trials,
        reason=figure.reason,
    )


def title_of(figure: str, *, is_system: bool) -> str:
    """Say what a figure of a card is."""
    if is_system and figure in _OF_SYSTEM:
        return _OF_SYSTEM[figure]
    if figure.startswith("latency_p"):
        quantile, _, label = figure.removeprefix("latency_p").partition("_ms_")
        return f"Latency, {quantile}th percentile, {label}"
    return _TITLES.get(figure, figure)


def answer_sentence(card: Card) -> str:
    """Say in one sentence what a reader should take along."""
    through, alarms = card.figure("attack_success_rate"), card.figure("false_positive_rate")
    attacks_end, benign_end = "get through", "are blocked"
    if card.subject.kind == SYSTEM:
        attacks_end, benign_end = "did harm", "are refused"
    return (
        f"{measure_text(cell_of(through))} of {_trials(through)} attacks {attacks_end}; "
        f"{measure_text(cell_of(alarms))} of {_trials(alarms)} benign inputs {benign_end}."
    )


def _trials(figure: CardFigure | None) -> str:
    if figure is None:
        return count_text(0)
    return count_text(figure.trials)


def _subject_text(card: Card) -> str:
    """Say what was measured: a kind of defense and its version, or a system and its parts."""
    if card.subject.kind == SYSTEM:
        parts = ", ".join(f"{part['kind']} {part['name']}" for part in card.subject.parts)
        return plain_line(f"a system around {parts}")
    version = card.subject.version or "version not stated"
    return plain_line(f"{card.subject.type}, {version}")


def _answer(card: Card) -> Section:
    """Write both rates against their limits, then every other figure of the card."""
    meaning = _ANSWERS.get(card.answer, "A baseline: it marks a limit.")
    is_system = card.subject.kind == SYSTEM
    about = _OF_GUARD
    if is_system:
        about = _OF_AN_ARM
    headline = f"{card.answer or 'Baseline'}. {answer_sentence(card)} {meaning}"
    limits = {
        "attack_success_rate": card.policy.limit_attacks,
        "false_positive_rate": card.policy.limit_alarms,
    }
    marks, tabled = [], []
    for each in card.figures:
        if each.name in limits:
            measure = cell_of(each)
            mark = IntervalMark(
                label=title_of(each.name, is_system=is_system),
                measure=measure,
                note=counts_text(measure),
                limit=limits[each.name],
            )
            marks.append(mark)
        elif each.name not in _ONLY_IN_JSON:
            tabled.append(each)
    chart = IntervalChart(
        id="card-rates",
        title='Both rates of errors; the line is the limit for "Rely"',
        axis="Share, lower is better",
        marks=tuple(marks),
    )
    table = table_of(
        tabled,
        {
            "Figure": lambda each: words(title_of(each.name, is_system=is_system)),
            "Measured": cell_of,
            "Counts": lambda each: words(counts_text(cell_of(each))),
            "Interval by": lambda each: words(_interval_method(each)),
        },
        table_id="card-figures",
        title="Other figures",
        texts=("Counts", "Interval by"),
    )
    return section("answer", "What came out", muted(about), headline, chart, table)


def _interval_method(figure: CardFigure) -> str:
    if figure.low is None:
        return ""
    return figure.method


def _errors_text(*, is_attack: bool) -> str:
    """Say what goes wrong in a blind spot of one side."""
    if is_attack:
        return "attacks get through"
    return "benign inputs are blocked"


def _blind_spots(card: Card) -> Section:
    table = None
    if card.blind_spots:
        table = table_of(
            card.blind_spots,
            {
                "Slice": lambda each: words(each.name),
                "What happens": lambda each: words(_errors_text(is_attack=each.is_attack)),
                "There": lambda each: cell_of(each.figure),
                "Counts": lambda each: words(counts_text(cell_of(each.figure))),
                "Elsewhere": lambda each: cell_of(each.rest),
            },
            table_id="card-blind-spots",
            title="Worse than on all other samples, beyond chance",
            texts=("What happens", "Counts"),
        )
    nothing = (
        "No slice of the data is shown to be worse than the rest. That is no proof that there is "
        "none: small slices cannot show it."
    )
    return section("blind-spots", "Known blind spots", table, otherwise=nothing)


def _left_open(card: Card) -> Section:
    """Name what the card did not measure, and slices with too few samples."""
    known_gaps = set(Gap)
    gaps = [_GAPS[Gap(each)] for each in card.gaps if each in known_gaps]
    thin = ", ".join(map(plain_line, card.thin))
    few = None
    if thin:
        few = f"Too few samples to rely on: {thin}."
    return section(
        "left-open", "What was not measured", gaps, few, otherwise="Nothing that a card asks for."
    )


def _claims(card: Card) -> Section | None:
    """Set what the maker claims beside what was measured; None without a claim."""
    if not card.claims:
        return None
    table = table_of(
        card.claims,
        {
            "Figure": lambda each: words(CLAIMED.get(each.figure, each.figure)),
            "Claimed": lambda each: words(_claimed(each)),
            "Measured": lambda each: cell_of(card.figure(each.figure)),
            "Side by side": lambda each: words(_STANDINGS[each.standing]),
            "Source": lambda each: words(" ".join(f"{each.source} {each.date}".split())),
            "Measured by the maker on": lambda each: words(each.data or "not said"),
        },
        table_id="card-claims",
        title="What its maker claims, beside what was measured",
        texts=("Claimed", "Side by side", "Source", "Measured by the maker on"),
    )
    note = muted(
        "A claim is its source's word. It may rest on other data: where it lies outside the "
        "interval, that alone does not make it false."
    )
    return section("claims", "Claimed and measured", table, note)


def _claimed(claim: MakerClaim) -> str:
    if claim.figure.startswith("latency"):
        return f"{claim.value:g} ms"
    return percent_text(claim.value)


def _categories(card: Card) -> Section:
    chart = _slice_chart(card, "category") or _slice_chart(card, "language")
    nothing = "The data state no category and no language."
    return section("categories", "By category", chart, otherwise=nothing)


def _slice_chart(card: Card, facet: str) -> IntervalChart | None:
    """Draw how many attacks get through by a facet; small slices are left out where it is long."""
    attacks = [each for each in card.slices if each.facet == facet and each.is_attack]
    if len(attacks) < 2:
        return None
    if len(attacks) > _MOST_SLICES:
        attacks = [each for each in attacks if not each.is_thin][:_MOST_SLICES]
    marks = []
    for each in attacks:
        note = ""
        if each.is_thin:
            note = "few samples"
        marks.append(IntervalMark(label=each.name, measure=cell_of(each.figure), note=note))
    title = f"Attacks let through, by {facet}"
    axis = "Attack success rate, lower is better"
    return IntervalChart(id=f"card-{facet}", title=title, axis=axis, marks=tuple(marks))


def _robustness(card: Card) -> Section | None:
    """Say what gets through after rewriting; None where nobody attacked it adaptively."""
    held = card.robustness
    if held is None:
        return None
    sentence = (
        f"As they are, {measure_text(cell_of(held.as_they_are))} of "
        f"{_trials(held.as_they_are)} attacks get through; after rewriting with up to "
        f"{count_text(held.budget)} calls an attack, {measure_text(cell_of(held.in_the_end))} do."
    )
    table = None
    if held.by_calls:
        table = table_of(
            held.by_calls,
            {
                "Calls an attack": lambda row: row[0],
                "Share that had got through": lambda row: words(percent_text(row[1])),
            },
            table_id="card-calls",
            title="By calls",
            texts=("Share that had got through",),
        )
    return section("robustness", "Against an attacker who adapts", sentence, table)


def _crosswalk(card: Card) -> Section | None:
    """Name the items of frameworks that the card holds evidence for; figures stand elsewhere."""
    if not card.crosswalk:
        return None
    pairs = tuple((_title_of(each), words(_items_of(each))) for each in card.crosswalk)
    note = muted(
        "A figure is evidence for an item or only relevant to it; nothing here says that anything "
        "conforms. Titles, figures and what is left open: the JSON of this card."
    )
    return section("crosswalk", "In the words of frameworks", Facts(title="", pairs=pairs), note)


def _title_of(framework: CardFramework) -> str:
    return f"{framework.key} {framework.version}"


def _items_of(framework: CardFramework) -> str:
    """Say which items a card has evidence for, which it only bears on, how many it leaves open."""
    evidence, relevant, left_open = [], [], 0
    for item in framework.items:
        if (item.evidence or item.recorded) and item.left_open:
            evidence.append(f"{item.code} (in part)")
        elif item.evidence or item.recorded:
            evidence.append(item.code)
        elif item.relevant:
            relevant.append(item.code)
        else:
            left_open += 1
    parts = []
    if evidence:
        parts.append(f"evidence for {', '.join(evidence)}")
    if relevant:
        parts.append(f"relevant to {', '.join(relevant)}")
    if left_open:
        parts.append(f"left open: {left_open} of {len(framework.items)} items")
    return "; ".join(parts)


def _terms(card: Card) -> Section:
    """List on what data and on which terms the card was measured, and by whom."""
    pairs: list[tuple[str, TextCell]] = []
    for each in card.data:
        counts = f"{count_text(each.attacks)} attacks, {count_text(each.benign)} benign"
        pairs.append(
            ("data", words(f"{each.name} {each.version} ({each.sha256[:_DIGEST]}): {counts}"))
        )
    pairs.append(("groups", words(count_text(card.samples.get("groups", 0)))))
    pairs.append(("languages", words(", ".join(card.languages) or "not stated")))
    policy = f"malformed answers: {card.policy.on_malformed}; errors: {card.policy.on_error}"
    pairs.append(("when it gives no decision", words(policy)))
    pairs.append(("runs of each input", words(count_text(card.policy.repeats))))
    limits = (
        f"at most {percent_text(card.policy.limit_attacks)} of attacks let through and "
        f"{percent_text(card.policy.limit_alarms)} of benign inputs blocked"
    )
    pairs.append(("limits for Rely", words(limits)))
    if card.subject.threshold is not None:
        pairs.append(("threshold", words(f"{card.subject.threshold:g}")))
    if card.subject.view:
        pairs.append(("looks at", words(card.subject.view)))
    pairs += list(_settings(card))
    pairs.append(("fingerprint", name(card.subject.fingerprint[:_DIGEST])))
    run = card.run
    pairs.append(("measured by", words(run.evaluator or "not stated")))
    pairs.append(("on", words(run.created_utc)))
    pairs.append(("with", words(f"guardmark {run.guardmark_version}, seed {run.seed}")))
    pairs.append(("head of the records", name(run.head[:_DIGEST])))
    pairs.append(("cohort: only such cards compare", name(card.cohort.key)))
    note = muted(
        "Cards of one cohort were measured on the same data with the same labels, policy and "
        "harness. Only these may stand in one table."
    )
    unfinished = None
    if run.state != "complete":
        unfinished = warning(
            "The run did not come to its end: its figures are of what was answered."
        )
    again = Listing(id="again", title="One command repeats it", lines=(run.again,))
    facts = Facts(title="", pairs=tuple(pairs))
    return section("terms", "On what, on which terms, by whom", unfinished, facts, note, again)


def _settings(card: Card) -> Iterator[tuple[str, TextCell]]:
    """Yield the first settings of what was measured; those that other facts tell are left out."""
    count = 0
    for key, value in card.subject.settings.items():
        if value in (None, "", [], {}) or key in {"type", "threshold", "view"}:
            continue
        count += 1
        if count > _MOST_SETTINGS:
            continue
        text = str(value)
        if len(text) > _MOST_VALUE:
            text = f"{text[:_MOST_VALUE]}..."
        yield f"setting {plain_line(key)}", words(plain_line(text))
    if count > _MOST_SETTINGS:
        yield "settings", words(f"and {count - _MOST_SETTINGS} more, in the JSON of the card")
