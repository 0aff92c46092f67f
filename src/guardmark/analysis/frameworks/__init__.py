"""Frameworks that buyers ask about: their items, and which samples and figures bear on each.

A TOML file each; `framework.py` reads them. `analysis/crosswalk` sets a run beside one.
"""
