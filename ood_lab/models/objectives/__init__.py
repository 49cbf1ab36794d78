"""Training objectives, one a file: what a classifier minimises."""
