"""Pages and figures of measured shift."""
