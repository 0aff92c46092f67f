"""Texts of an adaptive attacker made again: the records keep their hashes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.attacker_models import read_candidates
from guardmark.adaptive.prompts import strategies
from guardmark.adaptive.rebuilding import VariantText, rebuild_text
from guardmark.adaptive.search import MOST_USES
from guardmark.adaptive.state import text_digest
from guardmark.analysis.adaptive.rows import read_adaptive
from guardmark.attacks.talks import spell_talk
from guardmark.core.sample import Sample, Severity
from guardmark.reports.chapters.adaptive.attack_success import ROUNDS
from guardmark.reports.chapters.adaptive.operators import TIERS
from guardmark.reports.chapters.samples import Rewrite
from guardmark.store.layers import ADAPTIVE, ATTACKER
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.rows import Try
    from guardmark.store.reader import RecordReader

_BY_MODEL: Final = "attacker ["


@dataclass(frozen=True, kw_only=True)
class VariantTexts:
    """Makes the texts of one defense's tries again: chains from seeds, candidates from replies."""

    reader: RecordReader
    defense: str
    samples: Sequence[Sample]
    seed: int

    def text_of(self, each: Try) -> VariantText | None:
        """Return the text of a try."""
        if each.sent:
            return VariantText(text=each.sent)
        if each.chain.startswith(_BY_MODEL):
            text = self._candidates.get((each.sample, each.text))
            if text is None:
                return None
            return VariantText(text=text)
        return rebuild_text(
            each.chain,
            self.samples[each.sample],
            seed=self.seed,
            uses=MOST_USES,
            is_sent=lambda text: text_digest(text) == each.text,
        )

    @cached_property
    def _candidates(self) -> dict[tuple[int, str], str]:
        """Every candidate of the attacker model, by sample and hash."""
        texts: dict[tuple[int, str], str] = {}
        for record in read_tries(self.reader, defense=self.defense, layer=ATTACKER):
            raw = "" if record.evidence is None else record.evidence.raw
            for each in read_candidates(raw, strategies=strategies()).candidates:
                texts[record.sample, text_digest(each.text)] = each.text
        return texts


_GRAVEST: Final[dict[Severity | None, int]] = {
    severity: -rank for rank, severity in enumerate(Severity)
}


def read_rewrites(reader: RecordReader, *, most: int) -> tuple[Rewrite, ...]:
    """Choose what carried each attack past a defense in the fewest tries, the gravest first."""
    samples, best = list(reader.samples()), dict[int, Rewrite]()
    wins = []
    for records in read_adaptive(reader):
        for histories in (records.battery, records.arms.get(ADAPTIVE, {})):
            for at, history in histories.items():
                number = history.first()
                if number is not None and samples[at].is_attack:
                    grave = _GRAVEST.get(samples[at].severity, 1)
                    wins.append((grave, number, at, records.name, history.tries[number - 1]))
    seed = int(str(reader.layer_settings(ADAPTIVE).get("seed", 0)))
    texts_of = cache(partial(VariantTexts, reader=reader, samples=samples, seed=seed))
    for _, number, at, name, attempt in sorted(wins, key=lambda win: win[:4]):
        if at in best or len(best) >= most:
            continue
        made = texts_of(defense=name).text_of(attempt)
        if made is not None:
            proof = TIERS.get(attempt.tier, attempt.tier)
            round_ = ROUNDS.get(attempt.round, attempt.round)
            how = f"{attempt.chain or 'as it is'}; {proof}; {round_}, try {number}"
            best[at] = Rewrite(
                sample=samples[at], defense=name, how=how, text=spell_talk(made.text, attempt.chain)
            )
    return tuple(best.values())
