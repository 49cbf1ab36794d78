"""Scores of networks that a training objective has given layers of their own."""

from __future__ import annotations

from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


class OwnScoreColumn(BankColumn):
    """What the objective of a network says of an image (``backbone.objective.score``).

    Args:
        name: of the detector.
    """

    def __init__(self, name: str) -> None:
        self.name, self.key = name, f"own_score({name})"

    def layers(self, backbone: Backbone) -> list[str]:
        """None.

        Raises:
            UserError: the network was trained with another loss.
        """
        check_objective(self.name, backbone)
        return []

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """``[B]``."""
        assert backbone.objective is not None  # as `layers` has seen
        return backbone.objective.score(backbone, image, output).float()


def check_objective(name: str, backbone: Backbone) -> None:
    """Raises :class:`UserError` where a network was not trained for the detector ``name``."""
    if backbone.objective is None or backbone.objective.own_score != name:
        raise UserError(
            f"{name} scores networks that train.py has trained with loss={name}, and "
            f"{backbone.name} is none"
        )


class OwnScore(NetworkDetector):
    """A detector that reads the score of the network's own training objective."""

    reads = ("features", "maps")

    def __init__(self) -> None:
        super().__init__()
        self._column = OwnScoreColumn(self.name)

    def score(self, bank: FeatureBank) -> Tensor:
        """The column, ``[N]``."""
        return self.values(bank).double()


class ConfBranchScore(OwnScore):
    """Negative confidence of a second layer, ``-c`` (arXiv 1802.04865).

    See :class:`~ood_lab.models.objectives.conf_branch.ConfBranch`, which trains it.
    """

    name = "conf_branch"
    formula = "−sigmoid(vᵀx + b) of a layer trained for it"
    source = "1802.04865"
    suspicious = "the network would have asked for the label"
