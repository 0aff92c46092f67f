"""A defense in a process of its own, asked by lines of JSON."""
