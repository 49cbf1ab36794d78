"""Training of classifiers."""
