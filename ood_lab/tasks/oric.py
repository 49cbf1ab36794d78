"""ORIC: do vision-language models see unexpected objects, and only objects that are there?"""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.benchmarks.oric.benchmark import Oric
from ood_lab.run.job.benchmark_task import BenchmarkTask


@dataclass(frozen=True, kw_only=True)
class OricTask(Oric, BenchmarkTask):
    """See :class:`~ood_lab.lvlm.benchmarks.oric.benchmark.Oric`."""
