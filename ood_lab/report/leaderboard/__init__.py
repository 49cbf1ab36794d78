"""Tables over several runs."""
