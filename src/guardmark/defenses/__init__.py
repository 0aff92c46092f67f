"""Defenses: what is measured, each part beside its settings.

How a defense is asked (in line, in batches, in workers) lives in `engine`. Begin with `pattern`,
the smallest, then `http`; named guards and services are `profiles/*.toml`.
"""
