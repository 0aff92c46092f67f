"""Many short words in little memory: one string of bytes, and where each word ends."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class PackedStrings(Sequence[str]):
    """A sequence of words that makes each when it is asked for.

    A million ids as strings of their own take 70 bytes each; here they take what they are long,
    and eight.
    """

    __slots__ = ("_content", "_ends")

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._content = bytearray()
        self._ends = array("Q", [0])
        self.extend(words)

    def extend(self, words: Iterable[str]) -> None:
        """Put words behind the others."""
        content, ends = self._content, self._ends
        parts = list(words)
        said = "".join(parts)
        if said.isascii():  # a character is a byte
            ends.extend(islice(accumulate(map(len, parts), initial=len(content)), 1, None))
            content += said.encode()
            return
        for word in parts:
            content += word.encode(errors="surrogatepass")
            ends.append(len(content))

    def copy(self) -> PackedStrings:
        """Return the same words, to which others can be added."""
        other = PackedStrings()
        other._content += self._content
        other._ends = self._ends[:]
        return other

    def __len__(self) -> int:
        """Return how many words there are."""
        return len(self._ends) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        """Return a word, or a list of some."""
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        place = at + len(self) if at < 0 else at
        if not 0 <= place < len(self):
            raise IndexError(at)
        word = self._content[self._ends[place] : self._ends[place + 1]]
        return word.decode(errors="surrogatepass")

    def __iter__(self) -> Iterator[str]:
        """Yield the words in order."""
        return map(self.__getitem__, range(len(self)))
