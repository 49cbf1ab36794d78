"""What a job does: a task is a function of built objects; it never sees a configuration."""

from ood_lab.evaluation.tables import show_run
from ood_lab.evaluation.tuning import Tuning
from ood_lab.tasks.clip_report import clip_report
from ood_lab.tasks.compare import compare
from ood_lab.tasks.data_check import data_check
from ood_lab.tasks.divide import divide
from ood_lab.tasks.is_ood import check_pool, is_ood
from ood_lab.tasks.laid import laid
from ood_lab.tasks.laid_zero_shot import laid_zero_shot
from ood_lab.tasks.measure import measure
from ood_lab.tasks.predict import predict
from ood_lab.tasks.score import check_choices, score
from ood_lab.tasks.select_classes import select_classes
from ood_lab.tasks.separability import separability
from ood_lab.tasks.synthesize import synthesize
from ood_lab.tasks.transfer import transfer
from ood_lab.tasks.verify import verify
from ood_lab.tasks.workplace import Workplace

__all__ = [
    "Tuning",
    "Workplace",
    "check_choices",
    "check_pool",
    "clip_report",
    "compare",
    "data_check",
    "divide",
    "is_ood",
    "laid",
    "laid_zero_shot",
    "measure",
    "predict",
    "score",
    "select_classes",
    "separability",
    "show_run",
    "synthesize",
    "transfer",
    "verify",
]
