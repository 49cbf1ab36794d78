"""What all tables have in common: the results table, and the two axes of shift."""
