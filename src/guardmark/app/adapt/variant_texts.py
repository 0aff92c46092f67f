"""The texts of stored tries, made again: chains from their seeds, candidates from replies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.search import MOST_USES
from guardmark.adaptive.state import text_digest
from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.catalogue import parse_chain
from guardmark.attacks.contract import OperatorChain, Tier
from guardmark.attacks.prompts import STRATEGIES
from guardmark.core.errors import ConfigError
from guardmark.parsing.attacker_models import read_candidates
from guardmark.store.layers import ATTACKER
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.adaptive.rows import Try
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader

_MODEL: Final = "attacker ["
_SPAN: Final = re.compile(r"^(?P<chain>.*?)(?: \[(?P<start>\d+):(?P<end>\d+)\])?$", re.DOTALL)
_TOLD: Final = frozenset({Tier.V3, Tier.V3_TABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantText:
    """A text as it was sent."""

    text: str
    before: str = ""


@dataclass(slots=True, kw_only=True)
class VariantTexts:
    """Makes the texts of one defense's tries again."""

    reader: RecordReader
    defense: str
    samples: Sequence[Sample]
    seed: int
    _written: dict[tuple[int, str], str] | None = field(default=None)

    def text_of(self, each: Try) -> VariantText | None:
        """Return the text of a try."""
        if each.chain.startswith(_MODEL):
            text = self._candidates().get((each.sample, each.text))
            return None if text is None else VariantText(text=text)
        return self._made(each)

    def _made(self, each: Try) -> VariantText | None:
        said = _SPAN.match(each.chain)
        if said is None:
            return None
        try:
            chain = parse_chain(said["chain"])
        except ConfigError:  # an operator this version does not know
            return None
        sample = self.samples[each.sample]
        span = None if said["start"] is None else (int(said["start"]), int(said["end"]))
        for index in range(MOST_USES):
            seed = seed_for(self.seed, chain.key, sample.id, index)
            text = _applied(chain, sample, seed, span)
            if text_digest(text) == each.text:
                return VariantText(text=text, before=_before(chain, sample, seed, span))
        return None

    def _candidates(self) -> dict[tuple[int, str], str]:
        """Return every candidate of the attacker model, by sample and hash; read once."""
        if self._written is None:
            found: dict[tuple[int, str], str] = {}
            for record in read_tries(self.reader, defense=self.defense, layer=ATTACKER):
                raw = "" if record.evidence is None else record.evidence.raw
                for each in read_candidates(raw, strategies=STRATEGIES).candidates:
                    found[record.sample, text_digest(each.text)] = each.text
            self._written = found
        return self._written


def _applied(
    chain: OperatorChain, sample: Sample, seed: bytes, span: tuple[int, int] | None
) -> str:
    text = sample.prompt.text
    return apply(chain, text, seed=seed, must_keep=sample.must_keep, span=span).text


def _before(chain: OperatorChain, sample: Sample, seed: bytes, span: tuple[int, int] | None) -> str:
    """Apply the chain up to its last step that has to be judged; its draws stay the same."""
    last = max((i for i, arm in enumerate(chain.arms) if arm.tier in _TOLD), default=-1)
    if last in {-1, len(chain.arms) - 1}:
        return ""
    return _applied(OperatorChain(arms=chain.arms[: last + 1]), sample, seed, span)
