"""What attackers who watch the answers achieve: one idea a file."""
