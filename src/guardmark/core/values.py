"""Dataclasses that cost next to nothing to define: methods are shared, or written on first use.

For each frozen class the standard library writes and compiles six methods as the class is defined.
A short run defines some 230 such classes, makes no value of a hundred of them and a few of most
others: that took a quarter of its CPU. Here one function stands for all `__repr__`, fields are read
at once for `__eq__` and `__hash__`, and the standard library writes `__init__` when more than a few
values of a class are made (ADR 0231).
"""

from __future__ import annotations

import dataclasses
import inspect
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass  # a type checker knows this one
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make a dataclass: a frozen one with slots and keywords in the quick way.

        Args:
            cls: The class, as a decorator gets it.
            options: Those of `dataclasses.dataclass`.

        Returns:
            The dataclass, or a decorator where no class is given.
        """
        if cls is None:
            return partial(dataclass, **options)
        if options != _VALUE or cls.__bases__ != (object,):
            return dataclasses.dataclass(cls, **options)
        return _make_value(cls)


__all__ = ["dataclass"]

_VALUE: Final = {"frozen": True, "slots": True, "kw_only": True}
_BY_LOOP: Final = 16
"""Values of a class that are made before its `__init__` is worth writing."""
_NOT_COPIED: Final = frozenset({"__dict__", "__weakref__"})


def _make_value(cls: type) -> type:
    """Make a frozen dataclass with slots and keywords."""
    # Copied before the standard library takes the fields out of it.
    body = {name: own for name, own in vars(cls).items() if name not in _NOT_COPIED}
    body["__annotations__"] = dict(cls.__annotations__)
    # Without a docstring the standard library works out a signature to stand for it.
    cls.__doc__ = cls.__doc__ or cls.__name__
    make = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)
    value: Any = make(cls)
    options = value.__dataclass_params__
    options.init = options.repr = options.eq = options.frozen = True
    value.__setattr__ = _refuse_to_set
    value.__delattr__ = _refuse_to_delete
    value.__getstate__ = _state
    value.__setstate__ = _set_state
    value.__signature__ = _Signature()
    value.__init__ = _FirstValues(value, body).as_method()
    fields = dataclasses.fields(value)
    compared = [field.name for field in fields if field.compare]
    hashed = [
        field.name for field in fields if field.hash or (field.hash is None and field.compare)
    ]
    if "__eq__" not in body:
        value.__eq__ = _equality(_reader(compared))
    if body.get("__hash__") is None:
        value.__hash__ = _hash(_reader(hashed))
    if "__repr__" not in body:
        value.__repr__ = _repr
    return value  # type: ignore[no-any-return]


class _FirstValues:
    """Makes the first values of a class by a loop over its fields; then an `__init__` is written.

    Of most classes a short run makes a few values, and a loop makes those sooner than the standard
    library writes an `__init__`.
    """

    def __init__(self, value: Any, body: dict[str, Any]) -> None:
        self._value = value
        self._body = body
        self._left = _BY_LOOP
        self._fields = dataclasses.fields(value)
        self._names = {field.name for field in self._fields if field.init}
        self._needed = {
            field.name
            for field in self._fields
            if field.init
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        }

    def as_method(self) -> Callable[..., None]:
        """Return the `__init__` of the class."""

        def __init__(self_: Any, *arguments: object, **given: object) -> None:  # noqa: N807 - a method
            self._left -= 1
            is_sound = not arguments and self._needed <= given.keys() <= self._names
            if self._left >= 0 and is_sound:
                self._fill(self_, given)
                return
            # Of the standard library, as are its words about what is missing or unknown.
            self._write()
            self._value.__init__(self_, *arguments, **given)

        return __init__

    def _fill(self, value: Any, given: dict[str, object]) -> None:
        for field in self._fields:
            name = field.name
            if name in given:
                object.__setattr__(value, name, given[name])
            elif field.default_factory is not dataclasses.MISSING:
                object.__setattr__(value, name, field.default_factory())
            elif field.default is not dataclasses.MISSING:
                object.__setattr__(value, name, field.default)
        if "__post_init__" in self._body:
            value.__post_init__()

    def _write(self) -> None:
        twin: Any = type(self._value.__name__, (), dict(self._body))
        twin.__qualname__ = self._value.__qualname__
        write = dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
        self._value.__init__ = write(twin).__init__


def _reader(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    """Return a function that reads fields of a value, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _equality(read: Callable[[object], tuple[object, ...]]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - a method
        if other.__class__ is not self.__class__:
            return NotImplemented
        return read(self) == read(other)

    return __eq__


def _hash(read: Callable[[object], tuple[object, ...]]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:  # noqa: N807 - a method
        return hash(read(self))

    return __hash__


@recursive_repr()
def _repr(self: Any) -> str:
    fields = [field for field in dataclasses.fields(self) if field.repr]
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields)
    return f"{self.__class__.__qualname__}({shown})"


class _Signature:
    """What `inspect.signature` of a class answers, whether or not its `__init__` is written."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        """Return the fields as parameters."""
        parameters = []
        for field in dataclasses.fields(owner):
            if not field.init:
                continue
            default: Any = inspect.Parameter.empty
            if field.default is not dataclasses.MISSING:
                default = field.default
            elif field.default_factory is not dataclasses.MISSING:
                default = field.default_factory
            parameters.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=field.type,
                )
            )
        return inspect.Signature(parameters, return_annotation=None)


def _refuse_to_set(_self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    """Return what is pickled: the fields in their order."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[object]) -> None:
    """Take what was pickled; fields are set although the value is frozen."""
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
