"""Building the parts that a configuration names."""
