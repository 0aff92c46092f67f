"""Rewritings of an attack, each with the proof that the attack is still the attack."""
