"""Experiment loggers and W&B pages."""
