"""What a job does: one class per ``conf/task/*.yaml``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from ood_lab.run.workspace import Workspace


class Task(ABC):
    """Hydra builds it from its YAML; its fields are its settings.

    Its YAML says in ``_uses_`` what it asks the workspace for (:data:`~ood_lab.run.identity.USES`):
    a run is made of that part of the configuration alone, and a dry run builds no more.
    """

    def check(self, ws: Workspace) -> None:  # noqa: B027 - most have nothing to check
        """Raises :class:`UserError` where this task cannot work, before any long work."""

    @abstractmethod
    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Does the work; the table is logged. None on other ranks, and where there is no table."""
