"""ORIC's construction: unexpected objects, and expected objects that are not there.

- *Positives*: objects of interest of an image ``I`` (smaller than the median) whose presence a
  judge does not expect from the names of the larger ones; ``k`` of them are asked about.
- *Negatives*: ``I'``, the image nearest to ``I`` for a CLIP; of the objects that are not in it, the
  ``k`` whose texts are nearest to it are asked about.

A pair of images gives ``2 k`` questions, half of them with the answer yes. The fields of
:class:`Construction` say where the released code does something else than the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from ood_lab.arguments import Count
from ood_lab.lvlm.oric.judges import NoTest


@dataclass(frozen=True, kw_only=True)
class Construction:
    """How questions are made; the defaults are the paper's, or ours where it is silent.

    Attributes:
        pairs: pairs of images; ``2 k`` questions each.
        k: questions about an image.
        positives: ``judge``, or ``uniform``: any k annotated objects.
        negatives: ``clip``, or ``uniform``: any k absent objects.
        pick: of the unexpected objects, k at ``random``, or the ``first`` k in the order in which
            the annotations name them (released code).
        no_test: how a judge's reply is read, see :func:`~ood_lab.lvlm.oric.judges.says_no`.
        min_categories: of an image ``I`` (released code: 3; the paper names none).
        pool: where ``I'`` comes from: ``eligible`` images like ``I``, or ``all``, those without
            annotations too (released code).
        absent: which objects ``I'`` is asked about: ``any`` category that is not annotated in it
            (released code), or only those ``of_interest`` in ``I``, as the paper's wording allows.
        deduplicate: an unordered pair of images is used once, and a pair with a question that was
            asked before is left out whole (released code; the published files have no repeats).
        quota: ``filled``: images are drawn until there are enough pairs; ``sampled``: so many
            images are drawn, and those that fail are missing (released code). Repeated pairs of
            images are then left out before the draw, in the order of the annotations.
        chunk: scores are a softmax over so many texts at a time (released code: 100, which changes
            the order where there are more); None = the cosines of all are compared.
    """

    pairs: Annotated[int, Ge(0)] = 500
    k: Count = 2
    positives: Literal["judge", "uniform"] = "judge"
    negatives: Literal["clip", "uniform"] = "clip"
    pick: Literal["random", "first"] = "random"
    no_test: NoTest = "word"
    min_categories: Count = 3
    pool: Literal["eligible", "all"] = "eligible"
    absent: Literal["any", "of_interest"] = "any"
    deduplicate: bool = True
    quota: Literal["filled", "sampled"] = "filled"
    chunk: Count | None = None
