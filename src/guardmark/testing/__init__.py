"""What pytest and the authors of plug-ins use: a fixture for tests, and a contract to keep."""
