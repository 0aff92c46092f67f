"""Defenses: what is measured, each behind one of the protocols of `core.protocols`."""
