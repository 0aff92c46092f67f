"""Hands lines of MCP on standard streams to a server over HTTP, and its answers back.

Proxies that guard a server start it as a command: this is the command, so that they guard the tools
of a suite.

Usage: python stdio_bridge.py http://127.0.0.1:PORT/PATH
"""

from __future__ import annotations

import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit


def main() -> None:
    """Hand over one line after the other until the input ends."""
    address = urlsplit(sys.argv[1])
    server = HTTPConnection(address.hostname or "", address.port)
    for line in sys.stdin:
        if line.strip():
            server.request(
                "POST", address.path, line.encode(), {"Content-Type": "application/json"}
            )
            answer = server.getresponse().read()
            if answer:  # a notification has none
                sys.stdout.write(answer.decode() + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
