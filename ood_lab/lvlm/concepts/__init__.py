"""Which concepts images show, what is known of them, and which of them meet in images."""
