"""``task=validate``: what is missing, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ood_lab.errors import UserError
from ood_lab.run.task import Task
from ood_lab.run.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Validate(Task):
    """Builds jobs dry and lists all that is missing, see :func:`ood_lab.run.validate.validate`.

    ``train.py -m task=validate ...`` is answered for the whole sweep before Hydra starts a job.

    Args:
        config_name: ``train`` or ``eval``.
        overrides: of the command line to look at.

    Raises:
        UserError: a job could not run.
    """

    config_name: str
    overrides: Sequence[str] = ()

    def run(self, ws: Workspace) -> None:
        """See the class."""
        from ood_lab.run.validate import validate

        if ws.is_main and (blocked := validate(self.config_name, list(self.overrides))):
            raise UserError(f"{blocked} job(s) cannot run: see the list above")
