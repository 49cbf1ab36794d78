"""A vision-language model as an image-text model: does the image contain this label?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import store_of
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.asking_facts import failures
from ood_lab.lvlm.answers.judgements import judge
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.image_text.base import Scores, log_odds, texts_of
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions.question_files import Question


@dataclass
class ChatScores:
    """``s(x, y) = ln p("yes") - ln p("no")`` of the first token of the reply about label y.

    Their softmax needs no scale: for independent labels, OODBench's ``p_c`` is the probability of
    c, given that one of c and the absent labels is there. Where the backend gives no probability,
    a reply counts as 1 (yes), 0 (no) or 1/2 (unparsed), so that labels tie: case 1 flags no tie,
    and ``p_c`` shares it equally. Probabilities have 6 digits, so scores are within ± 13.8.

    Args:
        model: answers a question per image and label; each answer is kept.
        answers: folder of the answers of all models.
        template: question with ``{}`` for the label.
        name: for tables and columns.
    """

    model: ChatModel
    answers: Path
    template: str = "Does this image contain a {}? (yes or no)"
    name: str = "chat"

    @property
    def made_with(self) -> Settings:
        """The vision-language model, the question, and whether probabilities are requested."""
        settings = {"template": self.template, "logprobs": self.model.logprobs}
        return {"chat": dict(self.model.made_with), **settings}

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See the base class; a UserError where a question has no answer."""
        texts = dict(zip(labels, texts_of(labels, self.template), strict=True))
        questions = [
            Question(f"{file}/{c}", "yes_no", str(file.absolute()), text, "", meta={"category": c})
            for file in images
            for c, text in texts.items()
        ]
        store = store_of(self.model.made_with, self.answers)
        results = answers_to(questions, Path(), self.model, store)
        if problems := failures(results):
            raise UserError(
                f"image_text={self.name} has not answered all questions ({problems}): every answer "
                "that came is kept; repeat the command to ask the others again"
            )
        judgements = judge(questions, {answer.question_id: answer for answer in results})
        read = judgements["parsed"].map({YES: 1.0, NO: 0.0}).astype(float).fillna(0.5)
        chance = judgements["p_yes"].astype(float).fillna(read).to_numpy()
        return log_odds(chance).astype(np.float32).reshape(len(images), len(labels))
