"""Images as data sets; every error in them surfaces at set-up."""
