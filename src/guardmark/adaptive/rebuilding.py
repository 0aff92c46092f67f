"""The text of a try made again from its chain and its seed: records keep hashes of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.catalogue import parse_chain
from guardmark.attacks.contract import OperatorChain, Tier
from guardmark.attacks.talks import turn_texts, turns_of
from guardmark.attacks.word_edits import read_recipe
from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.core.sample import Sample

_JUDGED: Final = frozenset({Tier.V3, Tier.V3_TABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantText:
    """A text as it was sent."""

    text: str
    before: str = ""


def rebuild_text(
    key: str, sample: Sample, *, seed: int, uses: int, is_sent: Callable[[str], bool]
) -> VariantText | None:
    """Make the text of a chain or of edited words again; None where it is not what was sent."""
    edited_words = read_recipe(key, sample.prompt.text)
    if edited_words is not None:
        return _carried(sample, *edited_words, seed=seed, is_sent=is_sent)
    try:
        chain = parse_chain(key)
    except ConfigError:  # an operator this version does not know
        return None
    for index in range(uses):
        drawn = seed_for(seed, chain.key, sample.id, index)
        whole = _applied(chain, sample, drawn)
        texts: Sequence[str] = (whole,)
        if turns_of(chain) > 1 and whole != sample.prompt.text:
            texts = turn_texts(whole)
        for text in texts:
            if is_sent(text):
                return VariantText(text=text, before=_before(chain, sample, drawn))
    return None


def _carried(
    sample: Sample, text: str, key: str, *, seed: int, is_sent: Callable[[str], bool]
) -> VariantText | None:
    """Put edited words into the chain around them."""
    before = ""
    if key:
        before = text
        drawn = seed_for(seed, key, sample.id, 0)
        text = apply(parse_chain(key), text, seed=drawn, must_keep=sample.must_keep).text
    if not is_sent(text):
        return None
    return VariantText(text=text, before=before)


def _applied(chain: OperatorChain, sample: Sample, seed: bytes) -> str:
    return apply(chain, sample.prompt.text, seed=seed, must_keep=sample.must_keep).text


def _before(chain: OperatorChain, sample: Sample, seed: bytes) -> str:
    """Apply the chain up to its last step that has to be judged; its draws stay the same."""
    judged = [i for i, arm in enumerate(chain.arms) if arm.tier in _JUDGED]
    if not judged or judged[-1] == len(chain.arms) - 1:
        return ""
    return _applied(OperatorChain(arms=chain.arms[: judged[-1] + 1]), sample, seed)
