"""AMBER: what do vision-language models hallucinate in captions and wrongly affirm?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.amber.page import RECORD
from ood_lab.lvlm.benchmarks.amber.published_files import AmberFiles
from ood_lab.lvlm.benchmarks.amber.scoring import WAYS, results_of, rounded
from ood_lab.lvlm.captions.caption_rules import Words
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.questions.question_files import Questions
from ood_lab.run.building.benchmark_rules import results_options
from ood_lab.run.building.caption_task import CaptionBenchmark
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.results import NamedTables, Tables


@dataclass(frozen=True, kw_only=True)
class Amber(CaptionBenchmark):
    """Asks for the captions and the yes/no questions of AMBER's files, and scores both.

    Args:
        source: AMBER's files.

    Raises:
        UserError: see :meth:`check` and the models.
    """

    source: AmberFiles
    record: ClassVar[BenchmarkRecord] = RECORD

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where the words that captions are judged by are missing, too."""
        super().check(ws)
        if self.unparsed not in WAYS:
            raise UserError(f"task.unparsed={self.unparsed}: choose among {', '.join(WAYS)}")
        _ = self.source.vocabulary, self.source.safe_words

    def build(self, ws: Workspace) -> Questions:
        """The questions of the published files."""
        return self.source.questions(self.parser_of_questions)

    def about(self, ws: Workspace) -> str:
        """The folder of the files."""
        return Path(self.source.path).absolute().stem

    def words(self, ws: Workspace) -> Words:
        """Those of the files."""
        return self.source

    def results(self, ws: Workspace, judged: Tables, model: str) -> pd.DataFrame:
        """See the base class."""
        captions, answers = judged["captions"], judged["judged"]
        options = results_options(ws)
        return results_of(captions, answers, model, unparsed=self.unparsed, **options)

    def further(self, ws: Workspace, judged: Tables, source: Path) -> NamedTables:
        """What AMBER's script prints."""
        yield "amber", rounded(judged["captions"], judged["judged"])
