"""Figures of agents: what gets done, what attackers get done, and what guards cost."""
