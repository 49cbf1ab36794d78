"""What a job does: a task is a function of built objects; it never sees a configuration."""

from ood_lab.tasks.score import score
from ood_lab.tasks.tables import show_run

__all__ = ["score", "show_run"]
