"""Spans of OpenTelemetry: decisions of live guards read, and a run written as spans."""
