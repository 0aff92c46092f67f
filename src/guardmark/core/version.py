"""The version of this package: one word, which costs nothing to import."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0"
