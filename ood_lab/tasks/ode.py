"""ODE: what do vision-language models hallucinate on pairs that are common, rare or fictional?"""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.benchmarks.ode.benchmark import Ode
from ood_lab.run.job.benchmark_task import BenchmarkTask


@dataclass(frozen=True, kw_only=True)
class OdeTask(Ode, BenchmarkTask):
    """See :class:`~ood_lab.lvlm.benchmarks.ode.benchmark.Ode`."""
