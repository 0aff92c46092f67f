"""The wire: the one place that opens connections, with limits, retries and redaction.

What a request says and what an answer means stands with the part that asks (`defenses.http`,
`models.chat`). Begin with `client`, then `service`: one call with its attempts.
"""
