"""Bootstrap, intervals and significance tests."""
