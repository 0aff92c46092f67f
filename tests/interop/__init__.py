"""Other tools really run against an endpoint of this machine, for the files that importers read."""
