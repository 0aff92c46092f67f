"""What a report is before it has a format: blocks, cells and their words."""
