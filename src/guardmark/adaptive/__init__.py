"""An attacker who watches the defense: rounds, control arms, benign twin, repair.

The rewritings it chooses from live in `attacks`, the figures of what got through in
`analysis.adaptive`. Begin with `campaign`, then `search`.
"""
