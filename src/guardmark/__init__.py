"""Measure whether an AI defense works, and how sure one may be of it."""

from __future__ import annotations

__version__ = "0.1.0"
