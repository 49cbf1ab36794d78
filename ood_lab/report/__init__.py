"""Tables, figures and the one-page report of a run, from its tables alone."""

from ood_lab.report.console import console_tables
from ood_lab.report.figures import FigureFile, write_dating_figure, write_figures
from ood_lab.report.html import write_report

__all__ = ["FigureFile", "console_tables", "write_dating_figure", "write_figures", "write_report"]
