"""What an adaptive attack measured, counted a second time."""
