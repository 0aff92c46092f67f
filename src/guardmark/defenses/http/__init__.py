"""A defense behind HTTP: what is sent, how the answer is read."""
