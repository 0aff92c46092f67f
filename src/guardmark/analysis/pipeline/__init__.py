"""Figures of guard, model and judge together."""
