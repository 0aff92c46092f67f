"""What an adaptive measurement found, told."""
