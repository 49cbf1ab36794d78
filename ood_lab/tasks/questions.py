"""Your own questions about your own images, asked and scored like any other benchmark."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.benchmarks.own_questions import OwnQuestions
from ood_lab.run.job.benchmark_task import BenchmarkTask


@dataclass(frozen=True, kw_only=True)
class OwnQuestionsTask(OwnQuestions, BenchmarkTask):
    """See :class:`~ood_lab.lvlm.benchmarks.own_questions.OwnQuestions`."""
