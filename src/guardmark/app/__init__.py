"""Wiring: names to objects, configurations to runs; the public verbs."""
