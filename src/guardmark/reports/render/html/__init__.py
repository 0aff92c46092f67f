"""A document as a page."""
