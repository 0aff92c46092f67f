"""Public data sets as data: where they lie, under which licence, how their rows are read."""
