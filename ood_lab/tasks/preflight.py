"""``task=preflight``: what is missing, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.run.commandline.composition import running_overrides
from ood_lab.run.job.workspace import Task, Workspace


@dataclass(frozen=True, kw_only=True)
class Preflight(Task):
    """Builds jobs dry and lists all that is missing, see ``validate``.

    ``train.py -m task=preflight ...`` is answered for the whole sweep before Hydra starts a job;
    what runs here is the task of an experiment that chooses it in its YAML.

    Args:
        config_name: ``train`` or ``eval``.

    Raises:
        UserError: a job could not run.
    """

    config_name: str

    def run(self, ws: Workspace) -> None:
        """See the class."""
        from ood_lab.run.job.preflight import validate

        if ws.is_main and (blocked := validate(self.config_name, running_overrides())):
            raise UserError(f"{counted(blocked, 'job')} cannot run: see the list above")
