"""py-toolguard's interceptor of MCP calls with its default policy, each call judged alone."""

import json
import os
import tempfile

from toolguard.mcp.interceptor import MCPInterceptor
from toolguard.mcp.policy import MCPPolicy


def check(text):
    call = json.loads(text)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it keeps the calls of the last minute there, and allows 50
        interceptor = MCPInterceptor(MCPPolicy.default())
        return not interceptor.intercept(call["name"], call["arguments"]).allowed
