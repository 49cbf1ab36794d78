"""From items to prompts of a vision-language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ood_lab.lvlm.benchmarks.oric.published_files import Item
from ood_lab.lvlm.questions.question_files import Question
from ood_lab.lvlm.questions.question_forms import Form

#: ``Question.task`` of all of them.
TASK = "oric"
_SECOND_LINE: Mapping[Form, str] = {
    "plain": "Please answer the question based on the given image.",
    "cot": "Let's think step-by-step and then answer the question based on the given image.",
}


def plain_text(problem: str, form: Form = "plain") -> str:
    """A question in the form of a prompt."""
    return f"Question: {problem}\n{_SECOND_LINE[form]}"


@dataclass(frozen=True, kw_only=True)
class QuestionWording:
    """How items become prompts.

    Attributes:
        form: ``plain``, or ``cot``, a chain of thought.
        parser: reads the replies.
        prompts: how many of an item's wordings are used.
    """

    form: Form = "plain"
    parser: str = "default"
    prompts: int = 4

    def questions(
        self, items: Sequence[Item], files: Mapping[str, str], meta: Sequence[Mapping[str, Any]]
    ) -> Iterator[Question]:
        """One question for each item and wording.

        Args:
            items: of one set.
            files: path of each image, by the name that the items have.
            meta: of each item: ``split`` (name of the set) and what results are divided by.
        """
        for item, known in zip(items, meta, strict=True):
            for number, problem in enumerate(item.problem[: self.prompts], 1):
                yield Question(
                    question_id=f"{known['split']}/{item.id}/{number}",
                    task=TASK,
                    image=files[item.image],
                    text=plain_text(problem, self.form),
                    answer=item.solution,
                    parser=self.parser,
                    pair_id=item.image,
                    meta={
                        "category": item.target_object,
                        "item": item.id,
                        "prompt": number,
                        **known,
                    },
                    reply="steps" if self.form == "cot" else "word",
                )
