"""Shift of images and datasets: features, distances and the marks of the rulers."""
