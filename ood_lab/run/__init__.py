"""Runs: command line, run folder, objects from configuration, W&B. Only room to know Hydra."""

from ood_lab.run.commandline import launch
from ood_lab.run.job import Job
from ood_lab.run.session import job

__all__ = ["Job", "job", "launch"]
