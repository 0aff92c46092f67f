"""Pages over many runs, served on this machine."""
