"""A benchmark of questions as the task of a job."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ood_lab.lvlm.benchmark.contract import Benchmark, BenchmarkSession
from ood_lab.lvlm.benchmark.engine import check_benchmark, run_benchmark
from ood_lab.run.job.workspace import Task, Workspace


@dataclass(frozen=True, kw_only=True)
class BenchmarkTask(Benchmark, Task):
    """Hands the objects of a configuration to the engine."""

    def check(self, ws: Workspace) -> None:
        """See :func:`~ood_lab.lvlm.benchmark.engine.check_benchmark`."""
        check_benchmark(self, session_of(ws))

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks, and before the last stage."""
        run = session_of(ws)
        check_benchmark(self, run)
        if not ws.is_main:
            return None
        results = run_benchmark(self, run)
        ws.unfinished = run.unfinished
        return results


def session_of(ws: Workspace) -> BenchmarkSession:
    """The objects of a configuration as a benchmark takes them."""
    return BenchmarkSession(
        inputs=ws,
        folder=ws.folder,
        record=ws.record,
        seed=ws.seed,
        draws=int(ws.metrics["n_bootstrap"]),
        min_count=int(ws.metrics["min_count"]),
        answers=ws.answers_root,
        features=ws.features_root,
        cache=ws.cfg.paths.cache,
    )
