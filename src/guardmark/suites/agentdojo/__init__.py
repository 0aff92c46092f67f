"""AgentDojo's suites: opened in an environment of their own, checked by their own checks."""
