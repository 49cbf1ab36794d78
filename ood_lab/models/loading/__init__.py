"""Networks of other packages and of files."""
