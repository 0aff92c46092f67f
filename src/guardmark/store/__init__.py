"""The records of a run: one SQLite file, the folder around it, what is read from it."""
