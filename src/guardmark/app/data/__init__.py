"""Data that a configuration or a command names, read and validated."""
