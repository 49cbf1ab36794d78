"""ORIC's construction: unexpected objects, and expected objects that are not there.

- *Positives*: objects of interest of an image ``I`` (smaller than the median) whose presence a
  judge does not expect from the names of the larger ones; ``k`` of them get a question.
- *Negatives*: ``I'``, the image nearest to ``I`` for a CLIP; of the objects that are not in it, the
  ``k`` whose texts are nearest to it get a question.

A pair of images gives ``2 k`` questions, half of them with the answer yes.

The released code departs from the paper, and ``task.released`` follows it:

- of the unexpected objects it takes the first k in the order in which the annotations name them,
  not k at random;
- "not", "know" and "cannot" in a judge's reply are a no to it (:func:`says_no`);
- the nearest image comes from all images, those without annotations too;
- it draws so many images, and those that fail are missing, where the paper's are drawn until there
  are enough pairs. Repeated pairs of images are then left out before the draw, in the order of the
  annotations;
- scores are a softmax over 100 texts at a time, which changes the order where there are more;
- the wording of the question to a judge, the text of an object for the CLIP, and the article of an
  object in a question ("an" before vowels, else none) are others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ood_lab.common.arguments import Count, PositiveShare, Settings
from ood_lab.lvlm.answers.open_answer_reader import TextModel
from ood_lab.lvlm.parsers import NO, PARSERS, YES


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
        released: do as the released code does, see the module.
    """

    pairs: Count = 500
    k: Count = 2
    positives: Literal["judge", "uniform"] = "judge"
    negatives: Literal["clip", "uniform"] = "clip"
    min_categories: Count = 3
    absent: Literal["any", "of_interest"] = "any"
    deduplicate: bool = True
    released: bool = False

    @property
    def clip_text(self) -> str | None:
        """Text of an object for a CLIP; None = the paper's, or that of a shipped one."""
        return "A image contains {}" if self.released else None


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

    def text(self, released: bool) -> str:
        """The question to a language model, as the paper prints it or as the code sends it."""
        names, noun = json.dumps(list(self.background), ensure_ascii=False), "target object"
        if released:
            names, noun = f"[{','.join(self.background)}]", "target objects"
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
        released: the question is that of the released code.
    """

    texts: TextModel
    released: bool

    @property
    def made_with(self) -> Settings:
        """The model's own, and the wording."""
        return {**self.texts.model.made_with, "released": self.released}

    def replies(self, asked: Sequence[Expectation]) -> list[str | None]:
        """Its replies; see :meth:`~ood_lab.lvlm.answers.open_answer_reader.TextModel.replies`."""
        texts = [item.text(self.released) for item in asked]
        results = self.texts.replies("oric_judge", texts)
        return [results[text] for text in texts]


def says_no(reply: str | None, released: bool) -> bool | None:
    """Whether a reply says no; None where it says neither yes nor no.

    Args:
        reply: None = there is none.
        released: a reply with the letters "no" is a no, as "not", "know" and "cannot", and all
            else is a yes; False = it is read as any yes/no answer.
    """
    if reply is None:
        return None
    if released:
        return "no" in reply.lower()
    return {YES: False, NO: True}.get(PARSERS["default"](reply) or "")
