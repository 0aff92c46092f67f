"""Public data sets as data: where they lie, under which licence, how their rows are read."""

from typing import Literal

Use = Literal["commercial", "redistribution", "training"]
"""What a licence may forbid to use a public set for."""
