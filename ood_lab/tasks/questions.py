"""Your own yes/no questions about your own images, asked and scored like any other benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.benchmarks.published_files import QuestionSource
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    Scored,
    answer_figures,
    page_of,
    wrong_answers,
)
from ood_lab.lvlm.pages.result_sentences import ACCURACY, MetricSentence
from ood_lab.lvlm.questions.package_exports import GroupMetric
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.lvlm.scoring import uncertainty
from ood_lab.lvlm.scoring.scored_results import POOLED, question_kind
from ood_lab.lvlm.scoring.uncertainty import doubt_table, uncertainty_rows
from ood_lab.lvlm.scoring.yes_no_scores import (
    DEFINITIONS,
    METRICS,
    YES_NO,
    Unparsed,
    model_contrasts,
    yes_no_rows,
    yes_no_tables,
)
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.table import Table
from ood_lab.run.building.benchmark_task import Benchmark, results_options
from ood_lab.run.building.workspace import Workspace
from ood_lab.schema.results import Kind

#: The set of questions that name none.
_ONLY = "all"


@dataclass(frozen=True, kw_only=True)
class Questions(Benchmark):
    """Prompts a vision-language model with the questions of a file, and scores its answers.

    The file is a ``questions.jsonl`` (docs/how-to/own-questions.md): ``question_id, task: yes_no,
    image, text, answer``; ``pair_id`` of questions that belong together, and in ``meta`` the
    ``split`` and the levels of shift, where known. Images are next to it.

    Args:
        title: what the benchmark is called.
        unparsed: which of the two ways of treating unparsed answers comes first.
        source: published files that the questions are read from, in place of ``questions``.
        positive: the positive class of precision, recall and F1.
        groups: metric → key in ``meta``: the share of groups all of whose questions are right.

    Raises:
        UserError: see :meth:`check` and the models.
    """

    title: str
    unparsed: Unparsed
    source: QuestionSource | None
    positive: Literal["yes", "no"]
    groups: Mapping[str, str]
    headlines: ClassVar[Sequence[Headline]] = (Headline(POOLED, "accuracy", "Acc"),)
    told: ClassVar[Sequence[MetricSentence]] = (ACCURACY,)
    compared: ClassVar[Mapping[str, str]] = METRICS
    asks: ClassVar[Sequence[str]] = (YES_NO,)

    @property
    def name(self) -> str:
        """The title."""
        return self.title

    @property
    def kind(self) -> Kind:
        """Named after the title."""
        slug = re.sub(r"[^a-z0-9]+", "_", self.title.lower()).strip("_") or "questions"
        return question_kind(slug, self._unit, "unparsed")

    @property
    def _unit(self) -> str:
        """What is resampled."""
        return "question pair" if self.source is None else "questions of an image"

    @property
    def wholes(self) -> Mapping[str, GroupMetric]:
        """The groups, whose questions also count one by one."""
        return {name: GroupMetric((YES_NO,), key, alone=True) for name, key in self.groups.items()}

    def check(self, ws: Workspace) -> None:
        """Raises a UserError unless there is a file of yes/no questions, or a source of them."""
        if self.questions is None and self.source is None:
            raise UserError("task=questions asks those of a file: give task.questions=FILE.jsonl")
        super().check(ws)

    def build(self, ws: Workspace) -> Sequence[Question]:
        """The questions of the published files."""
        assert self.source is not None
        return self.source.questions()

    def about(self, ws: Workspace) -> str:
        """The folder of the questions."""
        if self.questions is None:
            return Path(str(ws.settings["task"]["source"]["path"])).absolute().stem
        return Path(self.questions).absolute().parent.name

    def judged(
        self, ws: Workspace, questions: Sequence[Question], answers: Answers
    ) -> Mapping[str, pd.DataFrame]:
        """See the base class."""
        table = self.read(ws, questions, answers)
        splits = table["split"].fillna(_ONLY) if "split" in table else _ONLY
        return {"judged": table.assign(split=splits)}

    def results(
        self, ws: Workspace, judged: Mapping[str, pd.DataFrame], model: str
    ) -> pd.DataFrame:
        """See the base class."""
        table, options = judged["judged"], results_options(ws)
        splits = list(dict.fromkeys(table["split"]))
        doubts = uncertainty_rows(table, splits, POOLED, **ws.resampling)
        rows = yes_no_rows(
            table,
            splits,
            self.unparsed,
            positive=self.positive,
            groups=self.groups,
            **options,
        )
        return self.kind.table([*rows, *doubts], model=model, seed=options["seed"])

    def contrasts(self, ws: Workspace, judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """See the base class."""
        return model_contrasts(judged["judged"], positive=self.positive, **ws.resampling)

    @property
    def _definitions(self) -> list[tuple[str, str]]:
        """What is counted; of published files, as their reader says."""
        if self.source is None:
            return [*DEFINITIONS, *uncertainty.DEFINITIONS]
        _, (names, meaning), *others = DEFINITIONS
        counted = " ".join(str(type(self.source).__doc__).split("Args:")[0].split())
        meaning = meaning.replace("with yes as", f"with {self.positive} as")
        return [(self.title, counted.replace("``", "")), (names, meaning), *others]

    def summary(self, run: Scored) -> Iterator[Table | Text]:
        """Metrics of every set."""
        yield from yes_no_tables(run, self._metrics, _names(run), self.positive)
        yield from doubt_table(run, _names(run))

    @property
    def _metrics(self) -> dict[str, str]:
        """Metric and heading."""
        return METRICS | {name: name.replace("_", " ") for name in self.groups}

    def page(self, run: Scored, blocks: list[Table | Text]) -> Page:
        """Results, figures, and the first wrong answers of each set."""
        judged, names = run.judged["judged"], _names(run)
        wrong, thumbnails = wrong_answers(judged, names, run.source)
        levels = {key: METRICS[key] for key in ("accuracy", "yes_rate", "f1")}
        remark = f"Positive class: {self.positive}."
        return page_of(
            run,
            summary=blocks,
            details=[],
            figures=list(answer_figures(run, self._metrics, names, levels, POOLED, remark)),
            wrong=wrong,
            thumbnails=thumbnails,
            definitions=self._definitions,
        )


def _names(run: Scored) -> dict[str, str]:
    return {str(split): str(split) for split in dict.fromkeys(run.results["split"])}
