"""Judges: who says whether a response did harm."""
