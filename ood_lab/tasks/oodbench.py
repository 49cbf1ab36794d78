"""OODBench: do vision-language models see the objects that image-text models overlook?"""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.benchmarks.oodbench.benchmark import OODBench
from ood_lab.run.job.benchmark_task import BenchmarkTask


@dataclass(frozen=True, kw_only=True)
class OODBenchTask(OODBench, BenchmarkTask):
    """See :class:`~ood_lab.lvlm.benchmarks.oodbench.benchmark.OODBench`."""
