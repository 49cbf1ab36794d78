"""What the benchmarks share that ask for captions too, and judge them by AMBER's rules."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import pandas as pd

from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.captions.caption_rules import Rules, Words
from ood_lab.lvlm.captions.caption_scoring import Unparsed, caption_table
from ood_lab.lvlm.captions.comparison import contrasts
from ood_lab.lvlm.captions.nouns import NounExtractor
from ood_lab.lvlm.captions.question_kinds import GENERATIVE
from ood_lab.lvlm.captions.word_similarity import Similarity
from ood_lab.lvlm.questions.question_files import Questions
from ood_lab.run.building.benchmark_task import Benchmark
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.results import Tables


@dataclass(frozen=True, kw_only=True)
class CaptionBenchmark(Benchmark):
    """Scores captions and yes/no questions of the same images.

    Args:
        nouns: finds the nouns of a caption.
        similarity: tells synonyms.
        unparsed: which of the two ways of treating unparsed answers is printed.
    """

    nouns: NounExtractor
    similarity: Similarity
    unparsed: Unparsed

    @abstractmethod
    def words(self, ws: Workspace) -> Words:
        """The words that captions are searched for."""

    def judged(self, ws: Workspace, questions: Questions, answers: Answers) -> Tables:
        """Captions, and answers to the other questions."""
        ws.record.scoring = {**self.nouns.made_with, **self.similarity.made_with}
        rules = Rules.of(self.words(ws), self.similarity)
        others = [q for q in questions if q.task != GENERATIVE]
        return {
            "captions": caption_table(questions, answers, rules, self.nouns),
            "judged": self.read(ws, others, answers),
        }

    def contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """See the base class."""
        return contrasts(judged["captions"], judged["judged"], "model", **ws.resampling)
