"""Changes to the images of a dataset: backgrounds, corruptions, shots, held-out classes."""
