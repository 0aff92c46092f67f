"""Stored runs of agents with every call and result, of several tools, to be put before guards."""
