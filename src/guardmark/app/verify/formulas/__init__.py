"""Rates, intervals, tests and draws from their formulas, in plain loops."""
