"""Two defenses on the same samples."""
