"""Our quick dataclasses behave as those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from guardmark.core.values import dataclass

MANY = 40
"""More values than are made before a class gets an `__init__` of its own."""


class _Account:
    """What both kinds are made of."""

    owner: str
    balance: int = 0
    notes: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)
    ledger: int = field(default=0, hash=False)
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Count what the fields come to."""
        object.__setattr__(self, "total", self.balance + self.ledger)


def _body() -> dict[str, Any]:
    left_out = {"__dict__", "__weakref__"}
    # Each kind gets fields of its own: a field belongs to one class.
    return {name: copy.copy(own) for name, own in vars(_Account).items() if name not in left_out}


Account: Any = dataclass(frozen=True, slots=True, kw_only=True)(type("Account", (), _body()))
Theirs: Any = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(
    type("Account", (), _body())
)


@pytest.fixture(params=["first values", "later values"])
def kind(request: pytest.FixtureRequest) -> Any:
    """Ours, before and after its `__init__` is written."""
    ours = dataclass(frozen=True, slots=True, kw_only=True)(type("Account", (), _body()))
    if request.param == "later values":
        for number in range(MANY):
            ours(owner=str(number))
    return ours


@pytest.mark.parametrize(
    "given",
    [
        {"owner": "a"},
        {"owner": "a", "balance": 3, "ledger": 4},
        {"owner": "b", "notes": ["x"], "secret": "canary"},
    ],
)
def test_fields_and_their_text_are_the_same(kind: Any, given: dict[str, Any]) -> None:
    """Defaults, factories, what is counted after, and what `repr` leaves out."""
    ours, theirs = kind(**given), Theirs(**given)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ((), {}),
        ((), {"owner": "a", "colour": "red"}),
        ((), {"owner": "a", "total": 3}),
        (("a",), {}),
    ],
)
def test_mistakes_get_the_same_words(
    kind: Any, arguments: tuple[object, ...], given: dict[str, object]
) -> None:
    """What is missing, unknown, counted by the class itself, or given without its name."""
    with pytest.raises(TypeError) as theirs:
        Theirs(*arguments, **given)
    with pytest.raises(TypeError) as ours:
        kind(*arguments, **given)
    assert str(ours.value) == str(theirs.value)


def test_equality_and_hash_look_at_the_fields_that_count(kind: Any) -> None:
    """Notes do not count; the ledger counts for equality alone."""
    one = kind(owner="a", notes=["x"])
    assert one == kind(owner="a")
    assert hash(one) == hash(kind(owner="a", notes=["y"]))
    assert one != kind(owner="a", ledger=1)
    assert one != Theirs(owner="a", notes=["x"])
    assert hash(Account(owner="a")) == hash(Theirs(owner="a"))


def test_nothing_can_be_changed(kind: Any) -> None:
    """Neither set nor deleted, in the words of the standard library."""
    value = kind(owner="a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'owner'"):
        value.owner = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'owner'"):
        del value.owner
    assert not hasattr(value, "__dict__")


def test_a_factory_makes_one_for_each(kind: Any) -> None:
    """Two values do not share a list."""
    first, second = kind(owner="a"), kind(owner="b")
    first.notes.append("x")
    assert second.notes == []


def test_a_value_is_copied_pickled_and_replaced() -> None:
    """Workers get values by pickle; `replace` counts anew what the class counts."""
    value = Account(owner="a", balance=2, notes=["x"])
    assert copy.deepcopy(value) == value
    assert dataclasses.replace(value, balance=5).total == 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """One that pickle finds by its name."""

    size: int
    shape: tuple[int, ...] = ()


def test_pickle_keeps_every_field() -> None:
    """The class is found by its name, and nothing is frozen on the way."""
    value = Pickled(size=3, shape=(1, 3))
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own bytes


def test_the_signature_is_known_before_a_value_is_made() -> None:
    """For `help`, editors and whoever builds forms of it."""
    ours, theirs = inspect.signature(Account), inspect.signature(Theirs)
    assert list(ours.parameters) == list(theirs.parameters)
    assert all(each.kind is each.KEYWORD_ONLY for each in ours.parameters.values())
    assert ours.parameters["balance"].default == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loose:
    """One that is equal to anything, says so, and hashes alike."""

    name: str

    def __eq__(self, other: object) -> bool:
        """Agree."""
        return True

    def __hash__(self) -> int:
        """Agree here too."""
        return 7

    def __repr__(self) -> str:
        """Tell the name alone."""
        return self.name


def test_methods_of_its_own_are_kept() -> None:
    """As the standard library keeps them."""
    value = Loose(name="n")
    assert (value == 3, hash(value), repr(value)) == (True, 7, "n")


def test_other_kinds_are_the_standard_librarys() -> None:
    """One that may be changed, and one that inherits."""

    @dataclass(slots=True, kw_only=True)
    class Open:
        count: int = 0

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Wider(Pickled):
        colour: str

    several = Open()
    several.count = 2
    assert several == Open(count=2)
    assert Wider(size=1, colour="red") == Wider(size=1, shape=(), colour="red")
    with pytest.raises(FrozenInstanceError):
        Wider(size=1, colour="red").colour = "blue"  # type: ignore[misc]  # the point of it
