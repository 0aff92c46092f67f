"""What parts said, by sample and repeat, and what guards had made of the texts they were shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import MISSING
from guardmark.core.chunks import after_prefix
from guardmark.core.place import AFTER
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from guardmark.stats.arguments import Flags, Floats

    Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenTexts:
    """What guards made of texts: of each place, which of the names that follow holds its calls.

    Attributes:
        names: What stands behind the name of a part: nothing, or ` after G` for each that wrote.
        codes: Which of them, by place.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int32]

    def by(self, guard: str, rewritten: Flags) -> RewrittenTexts:
        """Return what it is where a guard wrote some of the texts anew."""
        if not rewritten.any():
            return self
        names, codes = [*self.names], self.codes.copy()
        for code in np.unique(self.codes[rewritten]).tolist():
            codes[rewritten & (self.codes == code)] = len(names)
            names.append(f"{self.names[code]}{AFTER}{guard}")
        return RewrittenTexts(names=tuple(names), codes=codes)

    def cut(self, characters: NDArray[np.int64]) -> RewrittenTexts:
        """Return the names of prefixes of answers, this many characters long; 0: none of them."""
        cut = np.flatnonzero(characters > 0)
        names, codes = [""], np.zeros(len(self.codes), dtype=np.int32)
        seen: dict[str, int] = {}
        for at in cut.tolist():
            name = after_prefix(self.names[self.codes[at]], int(characters[at]))
            if name not in seen:
                seen[name] = len(names)
                names.append(name)
            codes[at] = seen[name]
        return RewrittenTexts(names=tuple(names), codes=codes)

    def read(self, own: Columns, of: Callable[[str], Columns | None]) -> Columns:
        """Put together what is stored about each place's text, of `own` where none was changed."""
        columns = own
        for code, name in enumerate(self.names[1:], start=1):
            here, other = self.codes == code, of(name)
            if other is None:
                other = own.nothing()
            columns = columns.where(here, other)
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a part said by place, and how long it took; nan where no time counts."""

    said: Codes
    waited_ms: Floats

    def where(self, here: Flags, other: Columns) -> Columns:
        """Take the places named from other columns."""
        return Columns(
            said=np.where(here, other.said, self.said).astype(np.int8),
            waited_ms=np.where(here, other.waited_ms, self.waited_ms),
        )

    def nothing(self) -> Columns:
        """Return columns of as many places about which nobody was asked."""
        return Columns(
            said=np.full(len(self.said), MISSING, dtype=np.int8),
            waited_ms=np.full(len(self.said), np.nan),
        )
