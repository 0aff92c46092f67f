"""The tree of attack categories, open to additions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Taxonomy = Mapping[str, tuple[str, ...]]
"""Categories an attack may have, each with its finer ones, in the order reports list them."""


def extended(taxonomy: Taxonomy, additions: Mapping[str, Sequence[str]]) -> Taxonomy:
    """Return a taxonomy with a user's own categories added."""
    both = {**dict.fromkeys(additions, ()), **taxonomy}
    names = dict.fromkeys((*taxonomy, *additions))
    return {n: tuple(dict.fromkeys((*both[n], *additions.get(n, ())))) for n in names}


DEFAULT_TAXONOMY: Taxonomy = {
    "direct_injection": ("instruction_override", "role_switching", "constraint_bypass"),
    "indirect_injection": ("rag_injection", "tool_output_injection", "document_injection"),
    "jailbreak": ("persona_based", "encoding_based", "multi_turn", "hypothetical"),
    "extraction": ("prompt_extraction", "data_extraction", "pii_extraction"),
    "output_manipulation": ("format_injection", "content_steering", "hallucination_induction"),
}
