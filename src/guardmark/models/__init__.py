"""Target models: what a defense protects, behind an endpoint or in this process.

Guards and judges that are models live in `defenses` and `judges`. Begin with `chat`; `scripted` is
the model of the tests, `tool_agent` the agent over tool calls.
"""
