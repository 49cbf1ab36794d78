"""Tables, figures and the one-page report of a run, from its tables alone."""

from ood_lab.report.console import console_tables

__all__ = ["console_tables"]
