"""OODBench's statistics over the runs of several models."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.benchmarks.oodbench.model_statistics import OODBenchStatistics
from ood_lab.run.job.benchmark_task import session_of
from ood_lab.run.job.workspace import Task, Workspace


@dataclass(frozen=True, kw_only=True)
class OODBenchStatisticsTask(OODBenchStatistics, Task):
    """See :class:`~ood_lab.lvlm.benchmarks.oodbench.model_statistics.OODBenchStatistics`."""

    def run(self, ws: Workspace) -> None:
        """Writes its tables and its page."""
        self.write(session_of(ws))
