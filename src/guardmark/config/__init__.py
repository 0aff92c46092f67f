"""What every setting builds on: its base, YAML that knows its lines, secrets, lists of mistakes.

Settings of one part stand beside that part; here is what several rooms read, such as limits of
time, the cluster and the rule of `--stop-when`. Begin with `settings`, then `source`.
"""
