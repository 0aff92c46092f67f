"""Models in this process: classifiers and generators of the [hf] extra."""
