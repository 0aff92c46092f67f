"""Judges: who says whether a response did harm, and how a judge is tried.

How their words are read stands in `parsing.verdicts`; how good a judge was is counted in
`analysis.pipeline`. Begin with `llm`, then `rules` and `panel`.
"""
