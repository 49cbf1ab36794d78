"""Scores of networks that a training objective has given layers of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ood_lab.common.arguments import Positive
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import FitSplit, with_settings
from ood_lab.detectors.support.network_scores import NetworkDetector, input_step, sign
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn, GradientColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.head_kind import Part
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

    reads: tuple[Part, ...] = ("features", "maps")

    @cached_property
    def extraction_hook(self) -> BankColumn:
        """The score; only networks of this loss have one."""
        return OwnScoreColumn(type(self).name)

    def score(self, bank: FeatureBank) -> Tensor:
        """The column, ``[N]``."""
        return self.values(bank).double()


class ConfBranchScore(OwnScore):
    r"""Negative confidence of a second layer (arXiv 1802.04865).

    .. math:: s = -\mathrm{sigmoid}(v^\top z + b)

    See :class:`~ood_lab.models.objectives.conf_branch.ConfBranch`, which trains it.
    """

    name = "conf_branch"
    formula = "−sigmoid(vᵀx + b) of a layer trained for it"
    suspicious = "the network would have asked for the label"


class RotPredScore(OwnScore):
    r"""How badly four turns of the image are recognised, less its confidence (arXiv 1906.12340).

    .. math::
        -\mathrm{KL}(u \,\|\, \mathrm{softmax} f(x)) + \tfrac14 \sum_k \mathrm{CE}(g(x_k), k)

    See :class:`~ood_lab.models.objectives.rotpred.RotPred`. Three more passes an image.
    """

    name = "rotpred"
    reads = ("features", "logits", "maps", "gradients")
    formula = "−KL(u‖p) + mean CE of the turns by 0, 90, 180, 270 degrees"
    suspicious = "it is not seen by how much the image is turned"


class ARPLScore(OwnScore):
    r"""Negative largest distance from the reciprocal points (arXiv 2103.00953).

    .. math:: s = -\max_c f_c, \qquad f_c = \lVert z - p_c \rVert^2 / D - z^\top p_c

    See :class:`~ood_lab.models.objectives.arpl.ARPL`.
    """

    name = "arpl"
    reads = ("logits", "maps")
    formula = "−max f, distances from reciprocal points"
    suspicious = "the features are near what all classes are far from"


class MCDScore(OwnScore):
    r"""Distance of the predictions of two heads (arXiv 1908.04951).

    .. math:: s = \lVert p_1 - p_2 \rVert_1, \qquad p_i = \mathrm{softmax} f_i

    See :class:`~ood_lab.models.objectives.mcd.MCD`.
    """

    name = "mcd"
    reads = ("features", "logits", "maps")
    formula = "‖p₁ − p₂‖₁ of two heads"
    suspicious = "two heads disagree"


class MOSScore(OwnScore):
    r"""Least probability of "others" in the groups of classes (arXiv 2105.01879).

    .. math:: s = \min_k o_k

    See :class:`~ood_lab.models.objectives.mos.MOS`.
    """

    name = "mos"
    formula = "min over groups of the probability of other classes"
    suspicious = "in every group it is taken for another class"


class GODINColumn(GradientColumn):
    """Largest h of the image moved by each of the steps, ``[B, steps]``.

    Args:
        epsilons: steps in units of the un-normalised image.
    """

    def __init__(self, epsilons: Sequence[float]) -> None:
        self.epsilons, self.key = epsilons, f"godin(epsilons={list(epsilons)})"

    def layers(self, backbone: Backbone) -> list[str]:
        """None; see :func:`check_objective`."""
        check_objective("godin", backbone)
        return []

    def of_gradient(
        self,
        backbone: Backbone,
        image: Tensor,
        output: Output,
        maps: Tensors,
        gradient: Sequence[Tensor],
    ) -> Tensor:
        """One forward pass for each step."""
        std = backbone.data_config["std"]
        moved = (image + input_step(e, std, image) * sign(gradient[0]) for e in self.epsilons)
        return torch.stack([backbone(x).logits.amax(dim=1) for x in moved], dim=1).float()


@with_settings
class GODINScore(OwnScore):
    r"""Negative largest class score of the moved image (arXiv 2002.11297).

    .. math::
        s = -\max_c h_c(\tilde x), \qquad
        \tilde x = x + \tfrac{\epsilon}{\sigma}\,\mathrm{sign}\,\nabla_x \max_c h_c(x)

    ε is the step that makes the mean of max h over ID val largest. OpenOOD takes 0.0025 and
    the softmax of h. See :class:`~ood_lab.models.objectives.godin.GODIN`.

    Args:
        epsilons: steps to choose from, in units of the un-normalised image in [0, 1].
        fit_split: images that choose.
    """

    name = "godin"
    reads = ("logits", "gradients")
    formula = "−max h(x̃), x̃ moved towards it"
    suspicious = "no class score is high, even after a step towards it"

    epsilons: Sequence[Positive] = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
    fit_split: FitSplit = "val"

    @cached_property
    def extraction_hook(self) -> GODINColumn:
        """The scores at all ε."""
        return GODINColumn(self.epsilons)

    def fit(self, bank: FeatureBank) -> Self:
        """Chooses ε."""
        place = self.values(bank).double().mean(dim=0).argmax()
        self.fitted = {"place": place}
        self.used = {"epsilon": self.epsilons[int(place)]}
        return self

    def score(self, bank: FeatureBank) -> Tensor:
        """The column of that step, ``[N]``."""
        return -self.values(bank)[:, int(self.fitted["place"])].double()
