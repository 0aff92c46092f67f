"""Rewritings of an attack, each with the proof that the attack is still the attack.

Operators, their chains and the tiers of proof live here; who watches answers and searches stands in
`adaptive`. Begin with `contract`, then one file of `operators`.
"""
