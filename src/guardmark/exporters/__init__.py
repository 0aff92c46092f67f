"""What other programs read of a run: CSV, JUnit XML, SARIF, Inspect logs, minor_bench."""
