"""ORIC's construction: unexpected objects, and expected objects that are not there.

- *Positives*: objects of interest of an image ``I`` (smaller than the median) whose presence a
  judge does not expect from the names of the larger ones; ``k`` of them get a question.
- *Negatives*: ``I'``, the image nearest to ``I`` for a CLIP; of the objects that are not in it, the
  ``k`` whose texts are nearest to it get a question.

A pair of images gives ``2 k`` questions, half of them with the answer yes. Deviations of the
released code from the paper are in :mod:`ood_lab.lvlm.benchmarks.oric.construction.released_code`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from ood_lab.common.arguments import Count
from ood_lab.lvlm.benchmarks.oric.construction.released_code import PAPER, Rules


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

    pairs: Annotated[int, Ge(0)] = 500
    k: Count = 2
    positives: Literal["judge", "uniform"] = "judge"
    negatives: Literal["clip", "uniform"] = "clip"
    min_categories: Count = 3
    absent: Literal["any", "of_interest"] = "any"
    deduplicate: bool = True
    rules: Rules = PAPER
