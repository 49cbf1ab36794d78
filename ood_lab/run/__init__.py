"""Runs: command line, run folder, workspace, W&B. The only package that knows Hydra."""

from ood_lab.run.process import loading

with loading():
    from ood_lab.run.commandline import launch
    from ood_lab.run.session import job

__all__ = ["job", "launch"]
