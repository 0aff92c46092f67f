"""One versioned canonical form of a text, used by attacks, by their checks and as a repair."""
