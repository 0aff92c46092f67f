"""The tree of attack categories, open to additions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """One category of attack, in snake case, with its finer categories, if any are declared."""

    name: str
    subcategories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """All categories an attack may have, in the order reports list them."""

    categories: tuple[Category, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The category names, in order."""
        return tuple(category.name for category in self.categories)

    def find(self, name: str) -> Category:
        """Return the category of this name."""
        for category in self.categories:
            if category.name == name:
                return category
        raise UnknownName("category", name, self.names)

    def extended(self, additions: Mapping[str, Sequence[str]]) -> Taxonomy:
        """Return a taxonomy with a user's own categories added."""
        grown = {c.name: list(c.subcategories) for c in self.categories}
        for name, subcategories in additions.items():
            known = grown.setdefault(name, [])
            known.extend(sub for sub in subcategories if sub not in known)
        return Taxonomy(
            categories=tuple(
                Category(name=name, subcategories=tuple(subs)) for name, subs in grown.items()
            )
        )


DEFAULT_TAXONOMY = Taxonomy(categories=()).extended(
    {
        "direct_injection": ("instruction_override", "role_switching", "constraint_bypass"),
        "indirect_injection": ("rag_injection", "tool_output_injection", "document_injection"),
        "jailbreak": ("persona_based", "encoding_based", "multi_turn", "hypothetical"),
        "extraction": ("prompt_extraction", "data_extraction", "pii_extraction"),
        "output_manipulation": ("format_injection", "content_steering", "hallucination_induction"),
    }
)
