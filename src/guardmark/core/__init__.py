"""The vocabulary: frozen values, one protocol a kind of part, the tree of errors.

Sample, Decision, Verdict, Record and Estimate live here, with the standard library alone; files,
settings and formulas do not. Begin with `sample` and `outcome`, then `record` and `estimate`.
"""
