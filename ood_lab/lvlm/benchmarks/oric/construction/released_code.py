"""Where ORIC's released code does something else than its paper says.

One choice, ``task.released``, follows :data:`RELEASED` in everything; the default, :data:`PAPER`,
follows the paper, and what a reader expects where the paper is silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Article = Literal["right", "released"]
NoTest = Literal["word", "substring"]
Wording = Literal["paper", "released"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The steps in which the two differ.

    Attributes:
        pick: of the unexpected objects, k at ``random``, or the ``first`` k in the order in which
            the annotations name them (released).
        no_test: how a judge's reply is read, see
            :func:`~ood_lab.lvlm.benchmarks.oric.construction.judges.says_no`.
        pool: where the nearest image comes from: ``eligible`` images like the first, or ``all``,
            those without annotations too (released).
        quota: ``filled``: images are drawn until there are enough pairs; ``sampled`` (released):
            so many images are drawn, and those that fail are missing. Repeated pairs of images
            are then left out before the draw, in the order of the annotations.
        chunk: scores are a softmax over so many texts at a time (released: 100, which changes the
            order where there are more); None = the cosines of all are compared.
        judge_wording: of the question to a language model as judge.
        clip_text: of an object; None = ``an image contains {}``, or what a shipped CLIP was
            trained on.
        article: of the object in a question; the released one is "an" before vowels, else none.
    """

    pick: Literal["random", "first"] = "random"
    no_test: NoTest = "word"
    pool: Literal["eligible", "all"] = "eligible"
    quota: Literal["filled", "sampled"] = "filled"
    chunk: int | None = None
    judge_wording: Wording = "paper"
    clip_text: str | None = None
    article: Article = "right"


PAPER = Rules()
RELEASED = Rules(
    pick="first",
    no_test="substring",
    pool="all",
    quota="sampled",
    chunk=100,
    judge_wording="released",
    clip_text="A image contains {}",
    article="released",
)
