"""Charts of a document."""
