"""Wiring: names to objects, configurations to runs, and the public verbs.

Each verb reads as a page of steps that other rooms carry out. Begin with `verbs` for Python and
`run.running` for `guardmark run`; `parts` builds what a configuration names.
"""
