"""The operators, one file a family."""
