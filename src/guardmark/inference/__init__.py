"""Models in this process: classifiers and generators of the [hf] extra.

Only loading and running them lives here; what their outputs decide stands in `defenses`, `models`
and `judges`. Begin with `runtime`.
"""
