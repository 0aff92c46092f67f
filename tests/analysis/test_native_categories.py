"""Categories that a defense names itself, read from its answers as defenses of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.small_runs import Planned, Runs, attack, benign, failed, garbled

from guardmark.analysis.defense.native_categories import NativeCategory
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.estimate import Estimate
from guardmark.core.outcome import CategoryFinding, Decision, Evidence, Outcome
from guardmark.core.sample import Sample
from guardmark.stats.rates.proportion import wilson
from guardmark.stats.scores.auc import auc

OWN = ("assault", "threats", "fraud")
SAMPLES = [
    *(attack(n, category=OWN[n % 3], subcategory="") for n in range(60)),
    *(benign(n) for n in range(40)),
]
MAP = (("moderation", {"violence": ("assault", "threats"), "scam": ("fraud",)}),)


def number_of(sample: Sample) -> int:
    """The number that a sample was made with."""
    return int(sample.id[2:])


def violence_score(sample: Sample) -> float:
    """High for assault and threats, but for those of an odd number; for benign 0 to 9 high too."""
    number = number_of(sample)
    if not sample.is_attack:
        return 0.7 if number < 10 else 0.1
    return 0.9 if sample.category != "fraud" and number % 2 == 0 else 0.2


def answer(_: int, sample: Sample) -> Decision:
    """Score violence in every answer, flag scams in most, and mention a third only with a score."""
    number = number_of(sample)
    if number == 58:
        return failed()
    if number == 59:
        return garbled()
    score = violence_score(sample)
    found = [CategoryFinding(name="violence", flagged=score >= 0.5, score=score)]
    if number % 4 != 3:
        is_scam = sample.is_attack and sample.category == "fraud"
        found.append(CategoryFinding(name="scam", flagged=is_scam))
    if number == 0:
        found.append(CategoryFinding(name="rare", score=0.3))
    outcome = Outcome.BLOCK if any(each.flagged for each in found) else Outcome.ALLOW
    return Decision(outcome=outcome, evidence=Evidence(categories=tuple(found)))


def analysed(runs: Runs, **changes: object) -> dict[str, NativeCategory]:
    """The native categories of one defense."""
    planned = [Planned(name="moderation", answers=answer)]
    with runs.opened(SAMPLES, planned) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), **changes)  # type: ignore[arg-type]
        (defense,) = analyse_run(reader, settings).defenses
    return {each.name: each for each in defense.native_categories}


def fraction(rate: Estimate) -> tuple[int, int]:
    """The counts behind a rate."""
    return rate.successes, rate.trials


def test_flags_are_counted_over_the_answers_that_state_them(runs: Runs) -> None:
    """Of 58 attacks with an answer; an answer that lacks a category does not say it is harmless."""
    found = analysed(runs)
    # Even numbers of 0..57 that do not leave 2 by 3: 29 - 10 (2, 8, ... 56).
    assert fraction(found["violence"].flagged_attacks) == (19, 58)
    assert fraction(found["violence"].flagged_benign) == (10, 40)
    assert found["violence"].unstated == 0
    # 14 attacks below 58 leave 3 by 4, and 10 benign inputs.
    assert found["scam"].unstated == 24
    assert fraction(found["scam"].flagged_benign) == (0, 30)
    # Attacks 2, 5, 8 ... 56 less 11, 23, 35, 47.
    assert fraction(found["scam"].flagged_attacks) == (15, 44)
    assert found["violence"].flagged_attacks.low == pytest.approx(wilson(19, 58).low)


def test_a_category_that_is_only_scored_has_no_rate(runs: Runs) -> None:
    """Undefined, not zero; and a curve needs scores on both sides."""
    rare = analysed(runs)["rare"]
    assert rare.flagged_attacks.value is None
    assert rare.unstated == 98
    assert rare.curve is None or rare.curve.scored_attacks == 1


def test_flags_fall_on_the_categories_that_they_stand_for(runs: Runs) -> None:
    """Assault and threats are numbers that leave 0 and 1 by 3; half of them are scored high."""
    found = analysed(runs, category_map=MAP)
    violence = found["violence"].confusion
    assert violence is not None
    assert violence.own == ("assault", "threats")
    assert fraction(violence.flagged_own) == (19, 39)
    assert fraction(violence.flagged_other) == (0, 19)
    assert fraction(violence.own_among_flagged) == (19, 29)
    scam = found["scam"].confusion
    assert scam is not None
    assert fraction(scam.flagged_own) == (15, 15)
    assert fraction(scam.flagged_other) == (0, 29)
    assert fraction(scam.own_among_flagged) == (15, 15)
    assert found["rare"].confusion is None


@pytest.mark.parametrize("mapped", [True, False])
def test_the_curve_is_that_of_the_scores_of_the_category(runs: Runs, *, mapped: bool) -> None:
    """Over the attacks that it stands for, or over all of them where nobody said."""
    found = analysed(runs, category_map=MAP if mapped else ())
    curve = found["violence"].curve
    assert curve is not None
    used = [
        sample
        for sample in SAMPLES
        if number_of(sample) < 58 and not (mapped and sample.category == "fraud")
    ]
    scores = [violence_score(sample) for sample in used]
    assert curve.area == auc([sample.is_attack for sample in used], scores).ratio
    assert (curve.scored_attacks, curve.scored_benign) == (39 if mapped else 58, 40)
    first = curve.points[0]
    assert (first.threshold, first.true_positive_rate) == (0.9, 19 / curve.scored_attacks)
    assert found["scam"].curve is None


def test_a_defense_that_lists_what_it_flags_flagged_nothing_else(runs: Runs) -> None:
    """As guard models answer: `unsafe` and the codes, or `safe` and none."""

    def listing(_: int, sample: Sample) -> Decision:
        if number_of(sample) == 59:
            return failed()
        if violence_score(sample) < 0.5:
            return Decision(outcome=Outcome.ALLOW)
        found = (CategoryFinding(name="S1", flagged=True),)
        return Decision(outcome=Outcome.BLOCK, evidence=Evidence(categories=found))

    with runs.opened(SAMPLES, [Planned(name="guard", answers=listing)]) as reader:
        (defense,) = analyse_run(reader).defenses
    (category,) = defense.native_categories
    assert fraction(category.flagged_attacks) == (20, 59)
    assert fraction(category.flagged_benign) == (10, 40)
    assert category.unstated == 0


def test_members_of_a_chain_are_no_categories(runs: Runs) -> None:
    """A chain keeps the votes of its members in the same place."""
    planned = [Planned(name="both", answers=answer, type="chain")]
    with runs.opened(SAMPLES, planned) as reader:
        (defense,) = analyse_run(reader).defenses
    assert defense.native_categories == ()
