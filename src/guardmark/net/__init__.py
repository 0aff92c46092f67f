"""The wire: the one place that opens connections, with limits, retries and redaction."""
