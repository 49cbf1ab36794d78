"""Drawers of places and of the things in them."""
