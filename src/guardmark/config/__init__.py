"""What every setting builds on: its base, YAML with places, secrets, the list of mistakes."""
