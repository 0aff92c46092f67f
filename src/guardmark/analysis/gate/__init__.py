"""Limits of a release gate, and how each stands."""
