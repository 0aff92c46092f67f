"""Labelled attacks and benign inputs: files read, checked and combined into samples.

Built-in sets, the catalogue of public ones and checks of data live here; logs of other tools are
read in `interchange`. Begin with `loading`, then `formats.rows`.
"""
