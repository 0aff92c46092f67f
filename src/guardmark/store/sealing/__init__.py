"""Whether records are what was committed, and files what somebody signed."""
