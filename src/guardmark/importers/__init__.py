"""Results of other tools, read into samples, decisions, answers and verdicts: one file a tool."""
