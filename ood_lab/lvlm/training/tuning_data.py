"""Answers as data for fine-tuning: LLaVA's JSON, and the messages of TRL and transformers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from ood_lab.common.arguments import Count
from ood_lab.common.files import write_text
from ood_lab.common.grouping import grouped
from ood_lab.common.hints import check_known
from ood_lab.common.line_files import write_records
from ood_lab.common.random_streams import text_stream
from ood_lab.lvlm.parsers import YES
from ood_lab.lvlm.questions.question_files import GENERATIVE, Question, Questions
from ood_lab.lvlm.training.examples import conversation

LLAVA, TRL = "tuning_llava.json", "tuning_trl.jsonl"
_IMAGE = "<image>\n"


@dataclass(frozen=True)
class QuestionTuning:
    """Which questions become training data; each is answered rightly.

    Args:
        choose: ``errors``, yes/no questions that were answered wrongly and captions that make
            something up, or ``all`` questions; None = none, and no file is written.
        per_criterion: of a criterion, drawn at random; None = all.
        criteria: names of the criteria whose questions are taken; None = all.
    """

    choose: Literal["errors", "all"] | None = "errors"
    per_criterion: Count | None = 800
    criteria: Sequence[str] | None = None

    def check(self, questions: Questions) -> None:
        """Raises a UserError where no question is of one of the criteria."""
        problem = "task.tuning.criteria: no question is of '{name}'"
        check_known(self.criteria or (), sizes(questions), problem)

    def questions(
        self,
        questions: Questions,
        captions: pd.DataFrame,
        judgements: pd.DataFrame,
        seed: int,
    ) -> Questions:
        """The chosen questions, in their order.

        Args:
            questions: those with answers.
            captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
            judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
            seed: of the draws.
        """
        wrong = set(judgements.loc[~judgements["correct"].astype(bool), "question_id"])
        wrong |= set(captions.loc[captions["flagged"] > 0, "question_id"])
        by_criterion = grouped(
            (_criterion(question), place)
            for place, question in enumerate(questions)
            if question.answer and (self.choose == "all" or question.question_id in wrong)
        )
        kept = [
            int(place)
            for name, places in by_criterion.items()
            if self.criteria is None or name in self.criteria
            for place in text_stream(seed, "export", name).permutation(places)[: self.per_criterion]
        ]
        return [questions[place] for place in sorted(kept)]


def sizes(questions: Questions) -> dict[str, int]:
    """How many questions there are of every criterion."""
    return dict(Counter(map(_criterion, questions)))


def _criterion(question: Question) -> str:
    return str(question.meta.get("criterion", question.meta["split"]))


def write_tuning(questions: Questions, images: Path, folder: Path) -> None:
    """Writes ``tuning_llava.json`` and ``tuning_trl.jsonl``.

    Args:
        questions: with their right answers.
        images: folder that their images start from.
        folder: to write to.
    """
    llava, trl = [], []
    for question in questions:
        image, answer = str(images / str(question.image)), spoken(question)
        turns = [
            {"from": "human", "value": f"{_IMAGE}{question.text}"},
            {"from": "gpt", "value": answer},
        ]
        llava.append({"id": question.question_id, "image": image, "conversations": turns})
        trl.append({"messages": conversation(question.text, answer), "images": [image]})
    write_text(json.dumps(llava, indent=1) + "\n", folder / LLAVA)
    write_records(trl, folder / TRL)


def spoken(question: Question) -> str:
    """The right answer in words."""
    if question.task == GENERATIVE:
        return question.answer
    return "Yes" if question.answer == YES else "No"
