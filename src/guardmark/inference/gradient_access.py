"""What a local defense shows of its loss, so that an attack may follow the gradient (access A3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from guardmark.core.protocols import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guardmark.core.sample import Sample


@dataclass(frozen=True, slots=True)
class Swap:
    """One token of a text replaced by another.

    Attributes:
        start: Where the token begins.
        end: Where it ends.
        word: What stands there instead.
        drop: How much the swap lowers the log-odds of being blocked, to first order.
    """

    start: int
    end: int
    word: str
    drop: float


class LossGradient(Protocol):
    """The gradient of a defense's loss at one text."""

    @property
    def tokens(self) -> Sequence[tuple[int, int]]:
        """Start and end of each token the defense looks at, in order."""
        ...

    def swaps(self, token: int, *, allowed: Callable[[str], bool], most: int) -> Sequence[Swap]:
        """Return what lowers the log-odds of being blocked, the steepest first."""
        ...


class GradientAccess(Protocol):
    """Access to the gradients of one defense; nothing of it changes the defense."""

    def at(self, text: str) -> LossGradient:
        """Compute the gradient at a text."""
        ...


@runtime_checkable
class GradientDefense(Part, Protocol):
    """A defense in this process whose loss has a gradient."""

    def gradients(self) -> GradientAccess | None:
        """Return access to its gradients, or None where what it scores with has none."""
        ...


@runtime_checkable
class GradientAttack(Part, Protocol):
    """An attack that follows the gradient of a defense; its name carries its version."""

    def propose(self, sample: Sample, access: GradientAccess, *, most: int) -> Iterator[str]:
        """Yield variants of an attack's text, one at a time.

        What a variant is worth is decided elsewhere: it is checked against `must_keep` and the
        tiers, and the defense is asked. The next one is taken only while none got through.
        """
        ...
