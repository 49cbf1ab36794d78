"""A language model for prompts without images, as a judge of names or of replies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_files import AnswerStore
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.reply_text import without_reasoning
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.questions.question_files import Question


@dataclass(frozen=True)
class TextModel:
    """Asks for no reply twice.

    Args:
        model: of ``judge=...`` or ``reader=...``.
        store: keeps its replies.
        accept_failed: texts that got no reply are skipped; else they are an error, as what is
            made of the others would not be what the model stands for.
        name: what messages call it.
    """

    model: ChatModel
    store: AnswerStore
    accept_failed: bool = False
    name: str = "judge"

    def replies(self, kind: str, texts: Iterable[str]) -> dict[str, str | None]:
        """The reply to each text, without its thoughts; None: it failed, and that is accepted.

        Args:
            kind: of question, the first part of its id.
            texts: to be asked.

        Raises:
            UserError: the model cannot answer, or has not answered all. Replies are kept.
        """
        questions = [
            Question(_id(kind, text), kind, None, text, "") for text in dict.fromkeys(texts)
        ]
        answers = answers_to(questions, Path(), self.model, self.store) if questions else []
        errors = [answer.error for answer in answers if answer.error]
        if errors and not self.accept_failed:
            raise UserError(
                f"the {self.name} has not answered {len(errors):,} of {len(answers):,} questions "
                f"({errors[0]}): every reply that came is kept; repeat the command to ask the "
                "others again, or give task.accept_failed=true to skip them"
            )
        return {a.prompt: None if a.error else without_reasoning(a.response) for a in answers}


def _id(kind: str, text: str) -> str:
    return f"{kind}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
