"""ood_lab: out-of-distribution detection under graded shift."""

__version__ = "0.1.0"
