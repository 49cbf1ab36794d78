"""The questions of OODBench, word for word: protocol constants (arXiv 2602.18094)."""

from __future__ import annotations

from typing import NamedTuple

from ood_lab.lvlm.questions.question_forms import Form


class Wording(NamedTuple):
    """The two opposite questions about a category."""

    affirmative: str
    negative: str


_PLAIN = Wording(
    "Does this image contain a {c}? (yes or no)",
    "Does this image not contain a {c}? (yes or no)",
)
_COT = Wording(
    "Does this image contain {c}? Yes or No? Let's break down the information step by step.",
    "Does this image not contain {c}? Yes or No? Let's break down the information step by step.",
)

#: Basic-to-Advanced Progression: existence of c1, count of c2, more c1 than c2.
EXISTENCE = "Does this image contain a {c}? (yes or no)"
COUNTING = "How many {c} are there in the picture?"
LOGIC = (
    "Is the number of {c1} in the image greater than the number of {c2}? Answer with 'yes' or 'no'."
)


def wording(category: str, form: Form = "plain", article: bool = False) -> Wording:
    """Both questions about a category.

    The plain ones always have the article "a", before vowels and plurals too.

    Args:
        category: its name.
        form: ``plain`` or ``cot``, a chain of thought.
        article: put "a" into the chain-of-thought questions, as one of the paper's demos does.
    """
    texts = _COT if form == "cot" else _PLAIN
    named = f"a {category}" if form == "cot" and article else category
    return Wording(*(text.format(c=named) for text in texts))
