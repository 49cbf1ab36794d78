"""Images: users' own, and the builtin vessels; every error in them surfaces at set-up."""
