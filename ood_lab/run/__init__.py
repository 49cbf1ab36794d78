"""Runs: command line, run folder, workspace, W&B. The only package that knows Hydra."""

from ood_lab.run.job.process_start import loading

with loading():
    from ood_lab.run.building.network_training import classifier, finish_training, training
    from ood_lab.run.commandline.launch import launch
    from ood_lab.run.job.session import job

__all__ = ["classifier", "finish_training", "job", "launch", "training"]
