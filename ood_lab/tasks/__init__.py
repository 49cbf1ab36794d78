"""What a job does: a task is a function of built objects; it never sees a configuration."""

from ood_lab.tasks.clip_report import clip_report
from ood_lab.tasks.compare import compare
from ood_lab.tasks.data_check import data_check
from ood_lab.tasks.predict import predict
from ood_lab.tasks.score import check_choices, score
from ood_lab.tasks.tables import show_run
from ood_lab.tasks.tuning import Tuning
from ood_lab.tasks.verify import verify

__all__ = [
    "Tuning",
    "check_choices",
    "clip_report",
    "compare",
    "data_check",
    "predict",
    "score",
    "show_run",
    "verify",
]
