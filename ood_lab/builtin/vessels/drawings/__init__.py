"""Drawers of vessels, of other things, and of backgrounds."""
