"""The score of ID-like: class prompts against outlier prompts."""

from __future__ import annotations

from torch import Tensor

from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.prompts.backbone import IDLikeBackbone


def id_log_odds(logits: Tensor, outlier_logits: Tensor) -> Tensor:
    """``logsumexp_c l_c - logsumexp_n l'_n`` of ``[B, C]`` and ``[B, N]``, ``[B]``.

    Its sigmoid is ``P = Σ_{c<=C} softmax_c`` over all C + N texts.
    """
    return logits.logsumexp(dim=1) - outlier_logits.logsumexp(dim=1)


class IDLikeColumn(BankColumn):
    """:func:`id_log_odds` of the two heads of an :class:`IDLikeBackbone`, ``[B]``."""

    key = "idlike_log_odds"

    def layers(self, backbone: Backbone) -> list[str]:
        """None: both heads run on the features.

        Raises:
            DetectorRefusal: the backbone has no outlier prompts.
        """
        if not isinstance(backbone, IDLikeBackbone):
            raise DetectorRefusal("idlike needs outlier prompts: choose prompt=idlike, or leave it")
        return []

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """The log-odds, summed in float64."""
        assert isinstance(backbone, IDLikeBackbone)
        features = output.features.double()
        heads = (backbone.head, backbone.outlier_head)
        return id_log_odds(*(features @ head.weight.double().T for head in heads))


class IDLikeScore(NetworkDetector):
    r"""Negative log-odds of the classes against the outlier prompts (ID-like, arXiv:2311.15243).

    .. math:: s(x) = \log\sum_n e^{s f \cdot t'_n} - \log\sum_c e^{s f \cdot t_c}

    The authors' score is -P of ``P = Σ_c softmax_c`` over all texts, which is the sigmoid of -s:
    the order is the same, but in float32 P is 1 for most ID images, which then tie.

    Args:
        probability: the authors' number in place of the log-odds.
    """

    name = "idlike"

    def __init__(self, probability: bool = False) -> None:
        self.probability = probability
        super().__init__(IDLikeColumn())

    def score(self, bank: FeatureBank) -> Tensor:
        """-log-odds, or -P in [-1, 0], ``[N]``."""
        odds = self.values(bank).double()
        return -odds.sigmoid() if self.probability else -odds
