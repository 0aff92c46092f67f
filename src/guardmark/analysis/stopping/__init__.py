"""Rules that end a run early."""
