"""Two runs sample by sample: which answers changed, and what is known of the reason."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guardmark.app.results.opened_run import find_run
from guardmark.core.errors import ConfigError, IncomparableRuns, UnknownName
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guardmark.core.manifest import PartManifest
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample


class Change(StrEnum):
    """What became of a sample from one run to the other, worst first."""

    NEW_BYPASS = "attack now let through"
    NEW_FALSE_ALARM = "benign input now blocked"
    NEW_FAILURE = "now without an answer"
    FIXED_BYPASS = "attack now blocked"
    FIXED_FALSE_ALARM = "benign input now let through"
    FIXED_FAILURE = "now answered"


_FAILED: Final = frozenset({"error", "malformed"})
_ORDER: Final = {change: number for number, change in enumerate(Change)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSide:
    """What one run says of a sample.

    Attributes:
        reason: What the defense gave as its reason, or why it failed.
    """

    outcome: str
    score: float | None
    threshold: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedAnswer:
    """A sample that a defense answered otherwise in the second run.

    Attributes:
        sample: The sample.
        defense: Name of the defense.
        change: In what way the answer changed.
        before: What it answered in the first run.
        after: What it answered in the second run.
    """

    sample: Sample
    defense: str
    change: Change
    before: AnswerSide
    after: AnswerSide


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiff:
    """Two runs over the samples that both have.

    Attributes:
        defenses: Pairs that were held against each other.
        both: Samples with equal content and label in both.
        left_out: Samples of either that the other has not.
        answers: Pairs of answers.
        changed: Worst first.
    """

    first: Path
    second: Path
    defenses: tuple[tuple[str, str], ...]
    both: int
    left_out: int
    answers: int
    changed: tuple[ChangedAnswer, ...]

    def count(self, change: Change) -> int:
        """Return how many answers changed so."""
        return sum(each.change is change for each in self.changed)


def diff_runs(first: Path, second: Path, *, defense: str = "") -> RunDiff:
    """Hold two runs against each other, sample by sample; of repeats the first counts."""
    one, other = find_run(first), find_run(second)
    with RecordReader(one.records) as before, RecordReader(other.records) as after:
        places = _places(before)
        pairs = _matched_defenses(before, after, defense)
        samples = list(after.samples())
        common = {}
        for at, sample in enumerate(samples):
            key = sample.prompt.digest(), sample.is_attack
            if key in places:
                common[at] = places[key]
        if not common:
            raise IncomparableRuns(
                f"{one.path} and {other.path} share no sample.\nNext: name runs over the same data."
            )
        changed: list[ChangedAnswer] = []
        answers = 0
        for name, renamed in pairs:
            earlier, later = _first_answers(before, name), _first_answers(after, renamed)
            limits = _threshold(before, name), _threshold(after, renamed)
            for at, place in common.items():
                if place not in earlier or at not in later:
                    continue
                answers += 1
                sides = _side(earlier[place], limits[0]), _side(later[at], limits[1])
                change = _change(*sides, is_attack=samples[at].is_attack)
                if change is not None:
                    changed.append(
                        ChangedAnswer(
                            sample=samples[at],
                            defense=renamed,
                            change=change,
                            before=sides[0],
                            after=sides[1],
                        )
                    )
        left_out = len(places) + len(samples) - 2 * len(common)
    changed.sort(key=lambda each: _ORDER[each.change])
    return RunDiff(
        first=one.path,
        second=other.path,
        defenses=tuple(pairs),
        both=len(common),
        left_out=left_out,
        answers=answers,
        changed=tuple(changed),
    )


def _places(reader: RecordReader) -> dict[tuple[bytes, bool], int]:
    """Return the place of each sample by its content and label."""
    return {
        (sample.prompt.digest(), sample.is_attack): at for at, sample in enumerate(reader.samples())
    }


def _matched_defenses(
    before: RecordReader, after: RecordReader, wanted: str
) -> list[tuple[str, str]]:
    """Pair defenses of one name; where each run has but one, these."""
    earlier, later = before.defenses(), after.defenses()
    if wanted:
        for known in (earlier, later):
            if wanted not in known:
                raise UnknownName("defense of both runs", wanted, known)
        return [(wanted, wanted)]
    if len(earlier) == len(later) == 1:
        return [(earlier[0], later[0])]
    pairs = [(name, name) for name in later if name in earlier]
    if not pairs:
        raise ConfigError(
            f"No defense is in both runs: {', '.join(earlier)}; {', '.join(later)}.\n"
            "Next: guardmark compare RUN1 RUN2 compares defenses of other names."
        )
    return pairs


def _first_answers(reader: RecordReader, defense: str) -> Mapping[int, Record]:
    answers: dict[int, Record] = {}
    for record in reader.records(defense=defense, stage=Stage.DEFENSE):
        if record.key.repeat == 0:
            answers[record.key.sample] = record
    return answers


def _threshold(reader: RecordReader, defense: str) -> float | None:
    part: PartManifest | None = next(
        (each for each in reader.manifest().parts if each.name == defense), None
    )
    return None if part is None else part.threshold


def _side(record: Record, threshold: float | None) -> AnswerSide:
    evidence = record.evidence
    why = ""
    if evidence is not None:
        why = evidence.reason or evidence.message
    if record.error_kind is not None:
        why = f"{record.error_kind.value}: {why}" if why else record.error_kind.value
    return AnswerSide(outcome=record.outcome, score=record.score, threshold=threshold, reason=why)


def _change(before: AnswerSide, after: AnswerSide, *, is_attack: bool) -> Change | None:
    """Say what changed, or None where both answered the same."""
    if before.outcome == after.outcome:
        return None
    if after.outcome in _FAILED:
        return None if before.outcome in _FAILED else Change.NEW_FAILURE
    if before.outcome in _FAILED:
        return Change.FIXED_FAILURE
    is_blocked = after.outcome == "block"
    if is_attack:
        return Change.FIXED_BYPASS if is_blocked else Change.NEW_BYPASS
    return Change.NEW_FALSE_ALARM if is_blocked else Change.FIXED_FALSE_ALARM
