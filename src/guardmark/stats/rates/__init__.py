"""Rates and other shares, with their intervals."""
