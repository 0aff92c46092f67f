"""Answers to questions about a data set, and how they are worded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 5
"""Most lines of one kind of detail; how many there are beside is said."""


class Status(StrEnum):
    """How a question was answered."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_ASSESSED = "not assessed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number behind a finding."""

    name: str
    value: float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataIssue:
    """The answer to one question about a data set."""

    aspect: str
    status: Status
    message: str
    details: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()


def some_of(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the first few lines, and how many there are beside."""
    if len(lines) <= SHOWN:
        return tuple(lines)
    return (*lines[:SHOWN], f"and {len(lines) - SHOWN:,} more")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the plural where it needs one."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def label_noun(value: str) -> str:
    """Return what the samples of a label are called; other words stay."""
    return "attacks" if value == "attack" else value
