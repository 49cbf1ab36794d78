"""Images of pairs of concepts: composed, made by any text-to-image model, filtered, listed."""
