"""An attacker who watches the defense: rounds, control arms, benign twin, repair."""
