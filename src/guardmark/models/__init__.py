"""Target models: what a defense protects."""
