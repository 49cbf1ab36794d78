"""AMBER: what do vision-language models hallucinate in captions and wrongly affirm?"""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.benchmarks.amber.benchmark import Amber
from ood_lab.run.job.benchmark_task import BenchmarkTask


@dataclass(frozen=True, kw_only=True)
class AmberTask(Amber, BenchmarkTask):
    """See :class:`~ood_lab.lvlm.benchmarks.amber.benchmark.Amber`."""
