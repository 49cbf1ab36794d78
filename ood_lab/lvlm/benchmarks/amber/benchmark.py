"""AMBER: what do vision-language models hallucinate in captions and wrongly affirm?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmark.captions import CaptionBenchmark
from ood_lab.lvlm.benchmark.contract import BenchmarkSession, BenchmarkWords
from ood_lab.lvlm.benchmarks.amber import page
from ood_lab.lvlm.benchmarks.amber.published_files import AmberFiles
from ood_lab.lvlm.benchmarks.amber.scoring import WAYS, results_of, rounded
from ood_lab.lvlm.captions.caption_page import made_up
from ood_lab.lvlm.captions.caption_rules import CaptionWords
from ood_lab.lvlm.pages.benchmark_page import ScoredRun
from ood_lab.lvlm.questions.question_files import Questions
from ood_lab.report.rendering.blocks import Block, Folded, PlannedFigure, Section, Text
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.schema.results import NamedTables, Tables


@dataclass(frozen=True, kw_only=True)
class Amber(CaptionBenchmark):
    """Asks for the captions and the yes/no questions of AMBER's files, and scores both.

    Args:
        source: AMBER's files.

    Raises:
        UserError: see :meth:`check_inputs` and the models.
    """

    source: AmberFiles
    words: ClassVar[BenchmarkWords] = page.WORDS

    def check_inputs(self, run: BenchmarkSession) -> None:
        """Raises a UserError where the words that captions are judged by are missing, too."""
        if self.unparsed not in WAYS:
            raise UserError(f"task.unparsed={self.unparsed}: choose among {', '.join(WAYS)}")
        _ = self.source.vocabulary, self.source.safe_words

    def build(self, run: BenchmarkSession) -> Questions:
        """The questions of the published files."""
        return self.source.questions(self.parser_of_questions)

    def about(self, run: BenchmarkSession) -> str:
        """The folder of the files."""
        return Path(self.source.path).absolute().stem

    def vocabulary(self, run: BenchmarkSession) -> CaptionWords:
        """Those of the files."""
        return self.source

    def results(self, run: BenchmarkSession, judgements: Tables, model: str) -> pd.DataFrame:
        """See the base class."""
        captions, answers = judgements["captions"], judgements["judged"]
        options = run.options
        return results_of(captions, answers, model, unparsed=self.unparsed, **options)

    def further(self, run: BenchmarkSession, judgements: Tables, source: Path) -> NamedTables:
        """What AMBER's script prints."""
        yield "amber", rounded(judgements["captions"], judgements["judged"])

    def summary(self, run: ScoredRun) -> Iterator[Table | Text]:
        """See the base class."""
        return page.summary(run)

    def details(self, run: ScoredRun, pictures: Thumbnails) -> Iterable[Block]:
        """See the base class."""
        return page.details(run, pictures)

    def figures(self, run: ScoredRun) -> Iterable[PlannedFigure | Folded]:
        """See the base class."""
        return page.figures(run)

    def wrong(self, run: ScoredRun) -> tuple[Section, Thumbnails]:
        """See the base class."""
        return made_up(run, {"amber": "AMBER"}, "set")
