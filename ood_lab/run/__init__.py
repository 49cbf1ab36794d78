"""Runs: command line, run folder, workspace, W&B. The only package that knows Hydra."""

from ood_lab.run.job.launch import launch
from ood_lab.run.job.session import job
from ood_lab.run.job.training import classifier, finish_training, training

__all__ = ["classifier", "finish_training", "job", "launch", "training"]
