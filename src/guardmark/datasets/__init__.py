"""Labelled attacks and benign inputs: reading, combining and checking them."""
