"""Which figure of a run is evidence for which item of a framework that buyers ask about.

`frameworks/*.toml` hold codes, titles, versions and sources; `crosswalk.py` sets a run beside
one. Nothing here says that anything conforms to anything.
"""
