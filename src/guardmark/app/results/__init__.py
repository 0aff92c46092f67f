"""What a finished run has to say: reports, gate, comparison, exports."""
