"""Checks of the data before any heavy work."""
