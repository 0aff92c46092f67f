"""Whether a run folder holds what was measured: chains, hashes, figures and reports."""
