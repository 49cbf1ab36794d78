"""The scores of CLIPN: each class says yes or no."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.detectors.support.requirements import check_choice
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.prompts.clipn import CLIPNBackbone

Rule = Literal["atd", "ctw"]


def competing_to_win(logits: Tensor, no_logits: Tensor) -> Tensor:
    """CTW: log-odds of yes against no of the likeliest class, ``[B, C], [B, C] -> [B]``.

    ``l_c - l'_c`` at ``c = argmax l``. Its sigmoid is CLIPN's confidence.
    """
    best = logits.argmax(dim=1, keepdim=True)
    return (logits - no_logits).gather(1, best)[:, 0]


def agreeing_to_differ(logits: Tensor, no_logits: Tensor) -> Tensor:
    """ATD: ``log Σ_c softmax(l)_c sigmoid(l'_c - l_c)``, the mass of "none", ``[B]``.

    CLIPN's confidence is 1 minus its exponential.
    """
    none = F.logsigmoid(no_logits - logits)
    return (logits.log_softmax(dim=1) + none).logsumexp(dim=1)


class CLIPNColumn(BankColumn):
    """:func:`competing_to_win` and :func:`agreeing_to_differ` of an image, ``[B, 2]``."""

    key = "clipn(ctw,atd)"

    def layers(self, backbone: Backbone) -> list[str]:
        """None: both heads run on the features.

        Raises:
            DetectorRefusal: the backbone has no "no" texts.
        """
        if not isinstance(backbone, CLIPNBackbone):
            raise DetectorRefusal("clipn needs its own text towers: choose prompt=clipn")
        return []

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """Both numbers, computed in float64."""
        assert isinstance(backbone, CLIPNBackbone)
        features = output.features.double()
        heads = (backbone.head, backbone.no_head)
        yes, no = (features @ head.weight.double().T for head in heads)
        return torch.stack([competing_to_win(yes, no), agreeing_to_differ(yes, no)], dim=1)


class CLIPNScore(NetworkDetector):
    r"""How much the texts say "no" (CLIPN, arXiv:2308.12213).

    With ``p_c = sigmoid(l_c - l'_c)``, the probability of yes for class c:

    .. math::
        \text{ATD: } s = \log \sum_c (1 - p_c)\,\mathrm{softmax}(l)_c, \qquad
        \text{CTW: } s = l'_c - l_c, \; c = \arg\max l

    Both order images as the authors' confidences ``Σ_c p_c softmax(l)_c`` and ``p_c`` do, from
    the least to the most certain, but do not tie where those are 1 in float32.

    Args:
        rule: ``atd`` (agreeing to differ, which the authors report) or ``ctw`` (competing to win).
    """

    name = "clipn"

    def __init__(self, rule: Rule = "atd") -> None:
        self.rule = check_choice("clipn.rule", rule, get_args(Rule))
        super().__init__(CLIPNColumn())

    def score(self, bank: FeatureBank) -> Tensor:
        """The mass of "none" in logarithm, or the log-odds of no, ``[N]``."""
        won, none = self.values(bank).double().unbind(dim=1)
        return none if self.rule == "atd" else -won
