"""What a rule decided that ended a defense early, counted a second time."""
