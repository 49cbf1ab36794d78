"""ORIC's construction: unexpected objects, and expected objects that are not there.

- *Positives*: objects of interest of an image ``I`` (smaller than the median) whose presence a
  judge does not expect from the names of the larger ones; ``k`` of them get a question.
- *Negatives*: ``I'``, the image nearest to ``I`` for a CLIP; of the objects that are not in it, the
  ``k`` whose texts are nearest to it get a question.

A pair of images gives ``2 k`` questions, half of them with the answer yes. Deviations of the
released code from the paper are in :mod:`ood_lab.lvlm.benchmarks.oric.construction`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ood_lab.common.arguments import Count, Natural, PositiveShare, Settings
from ood_lab.lvlm.answers.open_answer_reader import TextModel
from ood_lab.lvlm.parsers import NO, PARSERS, YES

Article = Literal["right", "released"]
NoTest = Literal["word", "substring"]
Wording = Literal["paper", "released"]


@dataclass(frozen=True, kw_only=True)
class OricRules:
    """The steps in which the two differ.

    Attributes:
        pick: of the unexpected objects, k at ``random``, or the ``first`` k in the order in which
            the annotations name them (released).
        no_test: how a judge's reply is read, see
            :func:`~ood_lab.lvlm.benchmarks.oric.construction.says_no`.
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


PAPER = OricRules()
RELEASED = OricRules(
    pick="first",
    no_test="substring",
    pool="all",
    quota="sampled",
    chunk=100,
    judge_wording="released",
    clip_text="A image contains {}",
    article="released",
)


@dataclass(frozen=True, kw_only=True)
class OricConstruction:
    """How questions are made; the defaults are the paper's, or ours where it is silent.

    Attributes:
        pairs: pairs of images; ``2 k`` questions each.
        k: questions about an image.
        positives: ``judge``, or ``uniform``: any k annotated objects.
        negatives: ``clip``, or ``uniform``: any k absent objects.
        min_categories: of an image ``I`` (released code: 3; the paper names none).
        absent: the objects of questions about ``I'``: ``any`` category that is not annotated in it
            (released code), or only those ``of_interest`` in ``I``, as the paper's wording allows.
        deduplicate: an unordered pair of images is used once, and a pair with a repeated
            question is skipped whole (released code; the published files have no repeats).
        rules: what the released code does otherwise.
    """

    pairs: Natural = 500
    k: Count = 2
    positives: Literal["judge", "uniform"] = "judge"
    negatives: Literal["clip", "uniform"] = "clip"
    min_categories: Count = 3
    absent: Literal["any", "of_interest"] = "any"
    deduplicate: bool = True
    rules: OricRules = PAPER


_QUESTION = (
    "Given the following background objects: {background}, can you determine the presence of the "
    "following {noun}: {target}, with relying on textual priors, common sense knowledge, or "
    "general assumptions about object co-occurrences?\nPlease respond with yes or no."
)


@dataclass(frozen=True)
class Expectation:
    """Is ``target`` to be expected where the ``background`` is?

    Attributes:
        target: the object of interest.
        background: the other objects; there may be none.
        rank: share of all objects of interest that are less expected by the annotations.
    """

    target: str
    background: tuple[str, ...]
    rank: float

    def text(self, wording: Wording) -> str:
        """The question to a language model, as the paper prints it or as the code sends it."""
        names, noun = f"[{','.join(self.background)}]", "target objects"
        if wording == "paper":
            names, noun = json.dumps(list(self.background), ensure_ascii=False), "target object"
        return _QUESTION.format(background=names, noun=noun, target=self.target)


class Judge(Protocol):
    """Answers yes (to be expected) or no (unexpected), in words."""

    @property
    def made_with(self) -> Settings:
        """Everything that can change a reply."""

    def replies(self, asked: Sequence[Expectation]) -> list[str | None]:
        """A reply to each; None where there is none."""


@dataclass(frozen=True)
class CooccurrenceJudge:
    """Needs no language model: unexpected is what other images rarely have together.

    No, where ``P(target | background)``
    (:mod:`ood_lab.lvlm.annotations.image_contents`) is among the lowest ``quantile``
    of all objects of interest.

    Args:
        quantile: share of the objects of interest that are unexpected.
    """

    quantile: PositiveShare = 0.4

    @property
    def made_with(self) -> Settings:
        """The quantile."""
        return {"backend": "cooccurrence", "model": "cooccurrence", "quantile": self.quantile}

    def replies(self, asked: Sequence[Expectation]) -> list[str | None]:
        """Yes or No."""
        return ["No" if item.rank < self.quantile else "Yes" for item in asked]


@dataclass(frozen=True)
class ChatJudge:
    """A language model, which sees only names, no image.

    Args:
        texts: the model.
        wording: of the question.
    """

    texts: TextModel
    wording: Wording = "paper"

    @property
    def made_with(self) -> Settings:
        """The model's own, and the wording."""
        return {**self.texts.model.made_with, "wording": self.wording}

    def replies(self, asked: Sequence[Expectation]) -> list[str | None]:
        """Its replies; see :meth:`~ood_lab.lvlm.answers.open_answer_reader.TextModel.replies`."""
        texts = [item.text(self.wording) for item in asked]
        results = self.texts.replies("oric_judge", texts)
        return [results[text] for text in texts]


def says_no(reply: str | None, test: NoTest) -> bool | None:
    """Whether a reply says no; None where it says neither yes nor no.

    Args:
        reply: None = there is none.
        test: ``word`` reads it as any yes/no answer; ``substring`` is the released code's test,
            which takes "not", "know" and "cannot" for a no, and all else for a yes.
    """
    if reply is None:
        return None
    if test == "substring":
        return "no" in reply.lower()
    return {YES: False, NO: True}.get(PARSERS["default"](reply) or "")
