"""Figures of defenses: rates, slices, thresholds, latency."""
