"""Agents' worlds: tasks, injections, tools, and checks of what was done."""
