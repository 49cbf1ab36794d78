"""AMBER (arXiv 2311.07397), from its own files."""
