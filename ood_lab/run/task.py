"""What a job does: one class per ``conf/task/*.yaml``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import pandas as pd

    from ood_lab.run.workspace import Workspace


class Task(ABC):
    """Hydra builds it from its YAML; its fields are its settings.

    Attributes:
        uses: what it asks the workspace for that takes long to build, so that a dry run knows.
    """

    uses: ClassVar[frozenset[str]] = frozenset()

    def check(self, ws: Workspace) -> None:  # noqa: B027 - most have nothing to check
        """Raises :class:`UserError` where this task cannot work, before any long work."""

    @abstractmethod
    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Does the work; the table is logged. None on other ranks, and where there is no table."""
