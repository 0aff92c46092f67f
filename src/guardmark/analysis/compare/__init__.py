"""Defenses against each other on the same samples."""
