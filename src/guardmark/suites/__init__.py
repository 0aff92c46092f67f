"""Agents' worlds: tasks, injections, tools, and checks of what was done.

How a case runs through guards lives in `engine.agent_case`. Begin with `suite`, the protocol, then
`errands`, ours; `agentdojo` reads that benchmark.
"""
