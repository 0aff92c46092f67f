"""What other programs read of a run: CSV, JUnit XML, SARIF."""
