"""Chat models that see images: one contract, whatever answers."""
