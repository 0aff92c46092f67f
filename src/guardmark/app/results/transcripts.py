"""What an adaptive attacker tried, text by text: transcripts, bypasses, and these as data."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from guardmark.analysis.adaptive.rows import FULL, read_adaptive
from guardmark.analysis.defense.bypasses import Flaw, ListedSample, SampleAnswer
from guardmark.app.results.variant_texts import VariantTexts
from guardmark.attacks.talks import prompt_of, spell_talk
from guardmark.core.errors import ConfigError
from guardmark.core.sample import Sample, Severity
from guardmark.core.values import dataclass
from guardmark.datasets.formats.writing import sample_row
from guardmark.store.layers import ADAPTIVE
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.store.reader import RecordReader

_OUTCOMES: Final = {True: "allow", False: "block", None: "no answer"}
_NOT_ATTACKED: Final = (
    "This run holds no tries of an adaptive attacker.\nNext: guardmark adapt RUN, then the same."
)
_NOT_HERE: Final = (
    "A run of agents holds cases; the tries of an attack on its guards, if any, lie in the folder "
    "adaptive within it.\nNext: guardmark adapt CONFIG -o RUN, then the same with RUN/adaptive."
)
_GRAVEST: Final[dict[Severity | None, int]] = {
    severity: -rank for rank, severity in enumerate(Severity)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptTry:
    """One text that was sent in place of an attack, and what came of it.

    Attributes:
        number: Of the tries at this attack, from 1.
        chain: Operators used.
        tier: How far it is proved that it asks for the same.
        outcome: `allow`, `block` or `no answer`.
        text: None where it cannot be made again.
    """

    number: int
    round: str
    chain: str
    tier: str
    outcome: str
    is_bypass: bool
    text: str | None

    @property
    def spelled(self) -> str | None:
        """The text as a person reads it: a conversation by its speakers."""
        if self.text is None:
            return None
        return spell_talk(self.text, self.chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Every try at one attack of one defense; of the search and the fixed list, not of controls.

    Attributes:
        as_is: What became of the attack as it is.
    """

    defense: str
    sample: Sample
    as_is: str
    tries: tuple[TranscriptTry, ...]

    @property
    def bypass(self) -> TranscriptTry | None:
        """The first try that got through, or None."""
        return next((each for each in self.tries if each.is_bypass), None)


def read_transcripts(
    reader: RecordReader, *, defense: str = "", sample_id: str = "", first_only: bool = False
) -> Iterator[Transcript]:
    """Yield what was tried at each attack that was blocked as it is, the gravest first.

    With `first_only` no more is made again of each than what got through first.
    """
    attacked = read_adaptive(reader)
    if not attacked:
        raise ConfigError(_NOT_HERE if reader.holds_cases else _NOT_ATTACKED)
    samples = list(reader.samples())
    seed = int(str(reader.layer_settings(ADAPTIVE).get("seed", 0)))
    texts_of = cache(partial(VariantTexts, reader=reader, samples=samples, seed=seed))
    for records in attacked:
        if defense not in {"", records.name}:
            continue
        order = sorted(
            (at for at in records.baseline if samples[at].is_attack),
            key=lambda at: (_GRAVEST.get(samples[at].severity, 1), at),
        )
        make = texts_of(defense=records.name).text_of
        for at in order:
            if sample_id not in {"", samples[at].id}:
                continue
            tries = _tries(records, at, make, first_only=first_only)
            if tries:
                yield Transcript(
                    defense=records.name,
                    sample=samples[at],
                    as_is=_OUTCOMES[records.baseline[at]],
                    tries=tuple(tries),
                )


def _tries(
    records: AdaptiveRecords,
    place: int,
    make: Callable[[Try], object],
    *,
    first_only: bool,
) -> list[TranscriptTry]:
    """Return the tries of the fixed list and of the search, in order; a text once."""
    shown: list[TranscriptTry] = []
    number, seen = 0, set[str]()
    for histories in (records.battery, records.arms.get(ADAPTIVE, {})):
        history = histories.get(place)
        for each in () if history is None else history.tries:
            if each.text in seen:
                continue  # the search begins with what got through before
            seen.add(each.text)
            number += 1
            is_bypass = history is not None and history.holds(each, FULL)
            if first_only and not is_bypass:
                continue
            made = make(each)
            shown.append(
                TranscriptTry(
                    number=number,
                    round=each.round,
                    chain=each.chain,
                    tier=each.tier,
                    outcome=_OUTCOMES[each.passed],
                    is_bypass=is_bypass,
                    text=getattr(made, "text", None),
                )
            )
            if first_only:
                return shown
    return shown


def adaptive_bypasses(reader: RecordReader, *, defense: str = "") -> Iterator[Transcript]:
    """Yield what carried each blocked attack past each defense first."""
    for each in read_transcripts(reader, defense=defense, first_only=True):
        if each.bypass is not None:
            yield each


def as_sample(bypass: Transcript) -> Sample | None:
    """Return what got through as a sample of its own, in one group with the attack it came from."""
    won = bypass.bypass
    if won is None or won.text is None:
        return None
    sample = bypass.sample
    return replace(
        sample,
        id=f"{sample.id}~{bypass.defense}",
        prompt=prompt_of(sample.prompt, won.text, won.chain),
        variant=won.chain,
        group=sample.lineage,
        source=f"adaptive attack on {bypass.defense}",
    )


def listed_bypasses(reader: RecordReader) -> Iterator[ListedSample]:
    """Yield what got through as samples that a defense let through."""
    for each in adaptive_bypasses(reader):
        sample = as_sample(each)
        if sample is not None:
            answer = SampleAnswer(defense=each.defense, outcome="allow", flaw=Flaw.BYPASS)
            yield ListedSample(sample=sample, flaws=(Flaw.BYPASS,), answers=(answer,))


def write_transcripts(reader: RecordReader, path: Path) -> int:
    """Write every try as JSON lines, an attack and a defense a line; return how many."""
    lines = [_line(each) for each in read_transcripts(reader)]
    with whole_file(path) as out:
        out.write("".join(lines).encode())
    return len(lines)


def _line(each: Transcript) -> str:
    sample = each.sample
    document = {
        "defense": each.defense,
        "id": sample.id,
        "category": sample.category,
        "severity": sample.severity.value if sample.severity else None,
        "text": sample.prompt.text,
        "as_is": each.as_is,
        "tries": [asdict(one) for one in each.tries],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def write_regression_data(reader: RecordReader, path: Path) -> int:
    """Write what got through as a data set of attacks; a text that beat several stands once."""
    rows: dict[bytes, str] = {}
    for each in adaptive_bypasses(reader):
        sample = as_sample(each)
        if sample is not None:
            row = json.dumps(sample_row(sample), ensure_ascii=False)
            rows.setdefault(sample.prompt.digest(), f"{row}\n")
    if not rows:
        raise ConfigError("No attack got through after rewriting, so there is no data set of any.")
    with whole_file(path) as out:
        out.write("".join(rows.values()).encode())
    return len(rows)


def example_of(reader: RecordReader, *, defense: str, chain: str) -> tuple[str, str] | None:
    """Return an attack and what a chain of the fixed list made of it that got through."""
    samples = list(reader.samples())
    seed = int(str(reader.layer_settings(ADAPTIVE).get("seed", 0)))
    texts = VariantTexts(reader=reader, defense=defense, samples=samples, seed=seed)
    for records in read_adaptive(reader):
        if records.name != defense:
            continue
        for at, history in records.battery.items():
            for each in history.tries:
                if each.chain != chain or not history.holds(each, FULL):
                    continue
                made = texts.text_of(each)
                if made is not None:
                    return samples[at].prompt.text, made.text
    return None
