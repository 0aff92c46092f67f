"""Measure whether an AI defense works, and how sure one may be of it."""
