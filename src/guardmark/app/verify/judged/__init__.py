"""A pipeline, its judges and people, counted a second time."""
