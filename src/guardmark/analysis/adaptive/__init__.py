"""What an adaptive measurement found, from its records."""
