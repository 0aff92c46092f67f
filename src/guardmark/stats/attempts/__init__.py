"""Attackers who try more than once: bypasses over tries."""
