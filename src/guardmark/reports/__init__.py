"""Telling: one format-free document, and its renderings."""
