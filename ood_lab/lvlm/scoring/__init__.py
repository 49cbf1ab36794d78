"""Scores of answers, and comparisons of models."""
