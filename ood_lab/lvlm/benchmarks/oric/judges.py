"""Who says whether an object is to be expected among others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from annotated_types import Interval

from ood_lab.lvlm.answers.open_answer_reader import TextModel
from ood_lab.lvlm.benchmarks.oric.construction_settings import NoTest, Wording
from ood_lab.lvlm.parsers import NO, PARSERS, YES

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
        if wording == "paper":
            names = json.dumps(list(self.background), ensure_ascii=False)
            return _QUESTION.format(background=names, noun="target object", target=self.target)
        names = f"[{','.join(self.background)}]"
        return _QUESTION.format(background=names, noun="target objects", target=self.target)


class Judge(Protocol):
    """Answers yes (to be expected) or no (unexpected), in words."""

    @property
    def made_with(self) -> Mapping[str, Any]:
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

    quantile: Annotated[float, Interval(gt=0, le=1)] = 0.4

    @property
    def made_with(self) -> Mapping[str, Any]:
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
    def made_with(self) -> Mapping[str, Any]:
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
