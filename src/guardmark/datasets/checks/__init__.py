"""What a data set holds and what it can carry."""
