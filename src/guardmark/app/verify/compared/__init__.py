"""Defenses side by side, counted a second time."""
