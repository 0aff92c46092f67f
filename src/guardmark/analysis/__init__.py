"""From records to figures: counts, estimates, slices, comparisons."""
