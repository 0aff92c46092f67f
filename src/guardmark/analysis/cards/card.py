"""The value of a guard card, and how it is made from the analysis of a run."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - cards are checked against these types
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.cards.claims import MakerClaim, stand_beside
from guardmark.analysis.cards.cohort import Cohort, cohort_of
from guardmark.analysis.cards.figures import MONEY, CardFigure, of_quantile, of_rate, of_ratio
from guardmark.analysis.compare.verdicts import judge_chosen
from guardmark.analysis.crosswalk.crosswalk import measured_run, set_beside
from guardmark.analysis.defense.slices import NOT_STATED
from guardmark.analysis.frameworks.framework import FIGURES, current_frameworks
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.core.errors import UnknownName
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.crosswalk.crosswalk import CrosswalkRow
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import DataManifest, PartManifest, RunManifest

SCHEMA: Final = "guardmark-card"
SCHEMA_VERSION: Final = 1
"""Of a card: raised when a field goes or changes its meaning."""

PER_THOUSAND: Final = 1_000

SLICED: Final = ("category", "subcategory", "language", "variant", "severity")
"""Facets whose slices stand on a card."""

_BUDGETS: Final = (1, 4, 16, 64)
"""Calls an attack was worth, at which a card tells the success of an adaptive attacker."""


class Gap(StrEnum):
    """What a run did not measure, and a reader may take for granted."""

    NO_ADAPTIVE = "adaptive"
    NO_SYSTEM = "system"
    NO_REPEATS = "repeats"
    NO_COST = "cost"
    NO_LANGUAGES = "languages"
    ONE_LANGUAGE = "one_language"
    NOT_FINISHED = "not_finished"
    NO_BENIGN = "benign"
    NO_ATTACKS = "attacks"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSlice:
    """An error rate on a part of the samples.

    Attributes:
        facet: By what the samples were parted.
        name: The value of the facet.
        is_attack: Whether these are attacks (let through) or benign samples (blocked).
        is_thin: Whether there are too few samples or groups to rely on it.
        figure: The rate.
    """

    facet: str
    name: str
    is_attack: bool
    is_thin: bool
    figure: CardFigure


@dataclass(frozen=True, slots=True, kw_only=True)
class CardBlindSpot:
    """A slice on which the defense is worse than on all other samples, beyond chance.

    Attributes:
        name: What the slice is called.
        is_attack: Whether attacks get through there, or benign samples are blocked.
        figure: The rate in the slice.
        rest: The rate on all other samples of the label.
    """

    name: str
    is_attack: bool
    figure: CardFigure
    rest: CardFigure


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSubject:
    """What was measured.

    Attributes:
        name: Its name in the run.
        kind: `defense` for a guard by itself, `system` for an arm around a target model.
        type: Registered type of the defense; empty for an arm.
        version: Version as its owner states it, or empty.
        fingerprint: SHA-256 (hex) of its settings and of the files they name.
        threshold: Score from which it blocks, or None.
        view: What it looked at.
        settings: Its settings, secrets by name only.
        parts: Target model and judges around it: kind, name, type, version; empty for a defense.
    """

    name: str
    kind: str
    type: str
    version: str
    fingerprint: str
    threshold: float | None
    view: str
    settings: Mapping[str, Any]
    parts: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CardData:
    """A data set that it was measured on."""

    name: str
    version: str
    sha256: str
    attacks: int
    benign: int
    label_map: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPolicy:
    """On what terms answers were counted.

    Attributes:
        on_malformed: What happened to malformed answers.
        on_error: What happened to errors.
        repeats: How often each sample was run.
        confidence: Nominal coverage of the intervals, in (0, 1).
        limit_attacks: Share of attacks that may get through and *Rely* be said.
        limit_alarms: Share of benign samples that may be blocked and *Rely* be said.
    """

    on_malformed: str
    on_error: str
    repeats: int
    confidence: float
    limit_attacks: float
    limit_alarms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRobustness:
    """What an attacker who rewrites and watches the answers reached.

    Attributes:
        battery: Name and version of the list of rewritings.
        budget: Calls an attack was worth.
        as_they_are: Share of attacks let through without rewriting.
        in_the_end: Share let through by proved rewritings of any tier, at the end of all rounds.
        by_calls: Number of calls and the share of attacks that had got through by then.
    """

    battery: str
    budget: int
    as_they_are: CardFigure
    in_the_end: CardFigure
    by_calls: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEvidence:
    """A figure of the card that is evidence for an item of a framework.

    Attributes:
        of: A category of attacks, or the name of a headline figure.
        figure: The figure, as it stands elsewhere on the card.
    """

    of: str
    figure: CardFigure


@dataclass(frozen=True, slots=True, kw_only=True)
class CardItem:
    """An item of a framework beside the card.

    Attributes:
        code: As the framework numbers it.
        title: What it is about.
        evidence: Figures that are evidence for it.
        recorded: What the run keeps that is evidence and no rate, in words.
        relevant: What was measured and only bears on it, in words.
        left_open: What would be evidence for it and was not measured, in words.
    """

    code: str
    title: str
    evidence: tuple[CardEvidence, ...]
    recorded: tuple[str, ...]
    relevant: tuple[str, ...]
    left_open: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFramework:
    """A framework that buyers ask about, beside the card; nothing says that anything conforms.

    Attributes:
        key: What guardmark calls it.
        name: Its name.
        version: Its version.
        date: When that was published, as YYYY-MM-DD.
        items: Its items, in its order.
    """

    key: str
    name: str
    version: str
    date: str
    items: tuple[CardItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRun:
    """Who measured, when, and how to do it again.

    Attributes:
        name: Name of the run.
        created_utc: Start, ISO 8601.
        evaluator: Who answers for the run, or empty.
        guardmark_version: Version that measured.
        config_sha256: Hash (hex) of the resolved configuration.
        data_sha256: Hash (hex) over all data sets.
        head: Head of the chain of records (hex): who has the run can compare it.
        seed: Seed of everything that was drawn.
        state: Whether the run came to its end.
        again: The command that repeats it.
    """

    name: str
    created_utc: str
    evaluator: str
    guardmark_version: str
    config_sha256: str
    data_sha256: str
    head: str
    seed: int
    state: str
    again: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a run shows of one defense or arm.

    Attributes:
        schema: Always `guardmark-card`.
        schema_version: Raised when a field goes or changes its meaning.
        made_by: Version of guardmark that wrote the card.
        answer: A value of `Reliance`, such as *Not enough alone*; empty for a baseline.
        is_baseline: Whether it only marks the floor or the ceiling.
        subject: What was measured.
        data: On what.
        samples: `attacks`, `benign`, `groups`, by name.
        languages: Languages that the data state, most frequent first.
        policy: On what terms.
        cohort: Which cards may stand beside it.
        figures: Headline figures, by name.
        slices: Error rates by category, finer category, language, variant, severity; worst first.
        blind_spots: Slices that are worse than the rest beyond chance, worst first.
        gaps: What was not measured: values of `Gap`.
        thin: Categories with too few samples to rely on.
        claims: What the maker claims, beside what was measured.
        robustness: What an adaptive attacker reached, or None where none was tried.
        run: Who measured, when, how to do it again.
        crosswalk: Frameworks that hold on the day of the card, item by item.
    """

    schema: str
    schema_version: int
    made_by: str
    answer: str
    is_baseline: bool
    subject: CardSubject
    data: tuple[CardData, ...]
    samples: Mapping[str, int]
    languages: tuple[str, ...]
    policy: CardPolicy
    cohort: Cohort
    figures: tuple[CardFigure, ...]
    slices: tuple[CardSlice, ...]
    blind_spots: tuple[CardBlindSpot, ...]
    gaps: tuple[str, ...]
    thin: tuple[str, ...]
    claims: tuple[MakerClaim, ...]
    robustness: CardRobustness | None
    run: CardRun
    crosswalk: tuple[CardFramework, ...] = ()

    def figure(self, name: str) -> CardFigure | None:
        """Return a headline figure, or None where the card has none of that name."""
        return next((each for each in self.figures if each.name == name), None)


def subjects_of(analysis: RunAnalysis) -> tuple[DefenseAnalysis, ...]:
    """Return what a run can write cards of: arms of a pipeline, else defenses."""
    return analysis.system or analysis.defenses


def make_card(
    analysis: RunAnalysis,
    name: str = "",
    *,
    claims: Sequence[MakerClaim] = (),
    again: str,
) -> Card:
    """Make the card of one defense or arm of a run.

    Args:
        analysis: The analysis of the run.
        name: The defense or arm; may be empty where there is one that is no baseline.
        claims: What its maker claims; the standing of each is set here.
        again: The command that repeats the run.

    Raises:
        UnknownName: No such defense, or several and none named.
    """
    chosen = _chosen(subjects_of(analysis), name)
    manifest, settings = analysis.manifest, analysis.settings
    scope, limits = DEFENSE, settings.limits
    if analysis.system:
        scope, limits = SYSTEM, settings.system_limits
    attacked, robustness, adapted = None, None, None
    for card in analysis.adaptive:
        if card.name == chosen.name:
            attacked, robustness = card, _robustness(card)
    if attacked is not None and scope == DEFENSE:
        adapted = attacked.rounds[-1].full
    figures = tuple(_figures(analysis, chosen, scope=scope))
    by_name = {figure.name: figure for figure in figures}
    candidates = {}
    for subject in subjects_of(analysis):
        if not subject.is_baseline:
            candidates[subject.name] = subject.card
    answer, _ = judge_chosen(
        chosen.card, adapted, name=chosen.name, candidates=candidates, limits=limits
    )
    said = answer.value
    if chosen.is_baseline:
        said = ""
    return Card(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        made_by=VERSION,
        answer=said,
        is_baseline=chosen.is_baseline,
        subject=_subject(manifest, chosen.part, scope=scope),
        data=tuple(map(_card_data, manifest.data)),
        samples={
            "attacks": analysis.samples.attacks,
            "benign": analysis.samples.benign,
            "groups": analysis.samples.groups,
        },
        languages=analysis.samples.languages,
        policy=CardPolicy(
            on_malformed=str(manifest.on_malformed),
            on_error=str(manifest.on_error),
            repeats=manifest.repeats,
            confidence=manifest.confidence,
            limit_attacks=limits.attacks,
            limit_alarms=limits.alarms,
        ),
        cohort=cohort_of(manifest, scope=scope),
        figures=figures,
        slices=tuple(_slices(chosen)),
        blind_spots=tuple(_blind_spots(chosen)),
        gaps=tuple(gap.value for gap in _gaps(analysis, by_name, attacked=attacked, scope=scope)),
        thin=_thin(chosen),
        claims=tuple(stand_beside(claim, by_name) for claim in claims),
        robustness=robustness,
        run=CardRun(
            name=manifest.name,
            created_utc=manifest.created_utc,
            evaluator=manifest.evaluator,
            guardmark_version=manifest.guardmark_version,
            config_sha256=manifest.config_sha256,
            data_sha256=manifest.data_sha256,
            head=analysis.status.head,
            seed=manifest.seed,
            state=str(analysis.status.state),
            again=again,
        ),
        crosswalk=_crosswalk(analysis, chosen.name),
    )


def _crosswalk(analysis: RunAnalysis, name: str) -> tuple[CardFramework, ...]:
    """Set what was measured of one subject beside every framework that holds today."""
    measured = measured_run(analysis, only=name)
    frameworks = []
    for framework in current_frameworks():
        rows = set_beside(measured, framework)
        frameworks.append(
            CardFramework(
                key=framework.key,
                name=framework.name,
                version=framework.version,
                date=framework.date,
                items=tuple(_item(row) for row in rows),
            )
        )
    return tuple(frameworks)


def _card_data(data: DataManifest) -> CardData:
    return CardData(
        name=data.name,
        version=data.version,
        sha256=data.sha256,
        attacks=data.attacks,
        benign=data.benign,
        label_map=dict(data.mapping),
    )


def _error_rate(*, is_attack: bool) -> str:
    """Return the name of the error rate of a label."""
    if is_attack:
        return "attack_success_rate"
    return "false_positive_rate"


def _item(row: CrosswalkRow) -> CardItem:
    """Describe what a run says about one item of a framework."""
    evidence = []
    for found in row.evidence:
        figure = "attack_success_rate"  # of a category
        if found.key in FIGURES:
            figure = found.key
        evidence.append(CardEvidence(of=found.key, figure=of_rate(figure, found.rate)))
    return CardItem(
        code=row.item.code,
        title=row.item.title,
        evidence=tuple(evidence),
        recorded=row.recorded,
        relevant=row.relevant,
        left_open=row.left_open,
    )


def _chosen(subjects: Sequence[DefenseAnalysis], name: str) -> DefenseAnalysis:
    """Return the subject of a name, or the only one that is no baseline."""
    by_name = {each.name: each for each in subjects}
    if name:
        if name not in by_name:
            raise UnknownName("defense of this run", name, by_name)
        return by_name[name]
    candidates = [each for each in subjects if not each.is_baseline] or list(subjects)
    if len(candidates) != 1:
        raise UnknownName("defense of this run", "(none named)", by_name)
    return candidates[0]


def _subject(manifest: RunManifest, part: PartManifest, *, scope: str) -> CardSubject:
    """Describe what was measured; of a system with the model and the judges around it."""
    around: list[Mapping[str, str]] = []
    for other in manifest.parts:
        if scope == SYSTEM and other.kind in {"model", "judge"}:
            around.append(
                {
                    "kind": other.kind,
                    "name": other.name,
                    "type": other.type,
                    "version": other.version,
                }
            )
    return CardSubject(
        name=part.name,
        kind=scope,
        type=part.type,
        version=part.version,
        fingerprint=part.fingerprint,
        threshold=part.threshold,
        view=part.view,
        settings=dict(part.settings),
        parts=tuple(around),
    )


def _figures(analysis: RunAnalysis, chosen: DefenseAnalysis, *, scope: str) -> Iterator[CardFigure]:
    card = chosen.card
    yield of_rate("attack_success_rate", card.attack_success_rate)
    if scope == DEFENSE:
        yield of_rate("true_positive_rate", card.true_positive_rate)
    yield of_rate("false_positive_rate", card.false_positive_rate)
    yield of_rate("answered", card.answered)
    yield of_ratio("balanced_error", card.ratios.balanced_error)
    if scope == DEFENSE:
        yield of_ratio("precision", card.ratios.precision)
        yield of_ratio("f1", card.ratios.f1)
    for side, label in ((chosen.latency.attacks, "attacks"), (chosen.latency.benign, "benign")):
        for quantile in side.quantiles:
            yield of_quantile(f"latency_p{quantile.quantile * 100:g}_ms_{label}", quantile)
    for used in analysis.spending:
        if used.part == chosen.name and used.stage == "defense" and used.cost is not None:
            per_sample = None
            if used.priced:
                per_sample = used.cost / used.priced
            yield CardFigure(
                name="cost_per_1000",
                unit=MONEY,
                value=None if per_sample is None else per_sample * PER_THOUSAND,
                low=None,
                high=None,
                successes=None,
                trials=used.priced,
                groups=None,
                method="mean of the priced answers",
            )


def _slices(chosen: DefenseAnalysis) -> Iterator[CardSlice]:
    for table in chosen.slices:
        if table.facet not in SLICED:
            continue
        rate = _error_rate(is_attack=table.is_attack)
        for entry in table.rates:
            if entry.name == NOT_STATED and len(table.rates) == 1:
                continue
            yield CardSlice(
                facet=table.facet,
                name=entry.name,
                is_attack=table.is_attack,
                is_thin=entry.is_greyed,
                figure=of_rate(rate, entry.rate),
            )


def _blind_spots(chosen: DefenseAnalysis) -> Iterator[CardBlindSpot]:
    for spot in chosen.blind_spots:
        rate = _error_rate(is_attack=spot.is_attack)
        yield CardBlindSpot(
            name=spot.name,
            is_attack=spot.is_attack,
            figure=of_rate(rate, spot.rate),
            rest=of_rate(rate, spot.rest),
        )


def _thin(chosen: DefenseAnalysis) -> tuple[str, ...]:
    rates = chosen.slice_table("category", is_attack=True).rates
    return tuple(entry.name for entry in rates if entry.is_greyed)


def _gaps(
    analysis: RunAnalysis,
    figures: Mapping[str, CardFigure],
    *,
    attacked: AdaptiveCard | None,
    scope: str,
) -> Iterator[Gap]:
    if str(analysis.status.state) != "complete":
        yield Gap.NOT_FINISHED
    if not analysis.samples.attacks:
        yield Gap.NO_ATTACKS
    if not analysis.samples.benign:
        yield Gap.NO_BENIGN
    if attacked is None:
        yield Gap.NO_ADAPTIVE
    if scope == DEFENSE:
        yield Gap.NO_SYSTEM
    if analysis.manifest.repeats == 1:
        yield Gap.NO_REPEATS
    if "cost_per_1000" not in figures:
        yield Gap.NO_COST
    if not analysis.samples.languages:
        yield Gap.NO_LANGUAGES
    elif len(analysis.samples.languages) == 1:
        yield Gap.ONE_LANGUAGE


def _robustness(attacked: AdaptiveCard) -> CardRobustness:
    """Describe what an adaptive attacker came to, as far as a card has room for it."""
    points, by_calls = {}, []
    for curve in attacked.arms:
        if curve.arm == "adaptive":
            points = dict(curve.points)
    for calls in _BUDGETS:
        if calls in points:
            by_calls.append((calls, points[calls]))
    return CardRobustness(
        battery=str(attacked.settings.get("battery", "")),
        budget=attacked.budget,
        as_they_are=of_rate("attack_success_rate", attacked.rounds[0].full),
        in_the_end=of_rate("attack_success_rate", attacked.rounds[-1].full),
        by_calls=tuple(by_calls),
    )
