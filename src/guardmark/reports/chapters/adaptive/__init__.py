"""What attackers who watch the answers achieve."""
