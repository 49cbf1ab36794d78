"""What the benchmarks share that ask for captions too, and judge them by AMBER's rules."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.benchmark.contract import Benchmark, BenchmarkSession
from ood_lab.lvlm.captions.caption_rules import CaptionRules, CaptionWords, Similarity
from ood_lab.lvlm.captions.caption_scoring import Unparsed, caption_table
from ood_lab.lvlm.captions.comparison import contrasts
from ood_lab.lvlm.captions.nouns import NounExtractor
from ood_lab.lvlm.questions.question_files import GENERATIVE, Questions
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
    def vocabulary(self, run: BenchmarkSession) -> CaptionWords:
        """The words that captions are searched for."""

    def judged(self, run: BenchmarkSession, questions: Questions, answers: Answers) -> Tables:
        """Captions, and answers to the other questions."""
        run.record.scoring = {**self.nouns.made_with, **self.similarity.made_with}
        rules = CaptionRules.of(self.vocabulary(run), self.similarity)
        closed = [q for q in questions if q.task != GENERATIVE]
        return {
            "captions": caption_table(questions, answers, rules, self.nouns),
            "judged": self.read(run, closed, answers),
        }

    def contrasts(self, judgements: Tables, **resampling: Any) -> pd.DataFrame:
        """See the base class."""
        return contrasts(judgements["captions"], judgements["judged"], "model", **resampling)
