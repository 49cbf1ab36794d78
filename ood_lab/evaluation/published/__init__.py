"""Published numbers: read, compared with those of a run, and shown next to them."""
