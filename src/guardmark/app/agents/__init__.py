"""Runs of agents over suites: what a configuration names, and the verb that carries it out."""
