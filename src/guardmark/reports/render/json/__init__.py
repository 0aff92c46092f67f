"""Figures for machines: one encoder, and the schemas of what it writes."""
