"""Every figure of a run computed a second time, by paths of their own."""
