"""Pure functions from counts to figures with intervals, one file or folder a family of papers.

Nothing here knows a run, a file or a word of a report; methods kept only for comparison lie with
the oracles of the tests. Begin with `rates.proportion`; each module is loaded on use.
"""
