"""One job: its directory, identity, input files, and lifetime."""
