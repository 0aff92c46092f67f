"""The records of a run: one SQLite file, the folder around it, and the seals over both.

Writing, reading, the hash chain and the answer cache live here; what the records mean is counted in
`analysis`. Begin with `schema.sql`, then `records` (writing) and `reader`.
"""
