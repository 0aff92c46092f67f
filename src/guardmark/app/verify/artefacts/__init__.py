"""The other files of a run against the second count."""
