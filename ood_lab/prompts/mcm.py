"""Maximum concept matching: softmax of cosines between images and class texts."""

from __future__ import annotations

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.clip import ClipModel
from ood_lab.clip.backbone import ClipImages
from ood_lab.common.arguments import Positive
from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import Detector, DetectorRefusal, with_settings
from ood_lab.detectors.support.chunked_arithmetic import map_rows
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


def concept_matching(features: Tensor, texts: Tensor, temperature: float) -> Tensor:
    """``max_c softmax_c(cos(f, t_c) / T)`` of ``features [..., d]``, ``texts [C, d]``: ``[...]``.

    Both are normalised here.
    """
    cosines = F.normalize(features, dim=-1) @ F.normalize(texts, dim=-1).T
    scaled = cosines / temperature
    return (scaled.amax(dim=-1) - scaled.logsumexp(dim=-1)).exp()


class LocalMCMColumn(BankColumn):
    """``max_i max_c softmax_c(cos(f_i, t_c) / T)`` over the regions i of an image, ``[B]``.

    One more pass of the image tower; texts are the rows of the backbone's head, normalised.

    Args:
        temperature: T > 0.
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.key = f"local_mcm(temperature={temperature:g})"

    def layers(self, backbone: Backbone) -> list[str]:
        """None: regions come from the CLIP itself.

        Raises:
            UserError: the backbone is no CLIP, or its image tower has no local features.
        """
        _clip_of(backbone).check_local_features()
        return []

    @torch.no_grad()
    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """The likeliest class of the clearest region."""
        _, local = _clip_of(backbone).image_features_and_local(image)
        assert backbone.head is not None  # a CLIP's are texts
        with full_precision(image):
            best = concept_matching(local, backbone.head.weight.float(), self.temperature)
        return best.amax(dim=1)


def _clip_of(backbone: Backbone) -> ClipModel:
    if not isinstance(backbone, ClipImages):
        raise DetectorRefusal(
            "local MCM needs a CLIP: choose model=clip or prompt=..., or remove it"
        )
    return backbone.clip


@with_settings
class MCM(Detector):
    r"""Negative maximum softmax of cosines (MCM, arXiv:2211.13445).

    .. math:: s(x) = -\max_c \mathrm{softmax}(\cos(f, t_c) / T)_c

    with the image feature f and the class texts t_c, learned or not, without the logit scale.
    Nothing is fitted.

    Args:
        temperature: T > 0. At T = 1/100, the scale of CLIP's logits, most scores saturate.
    """

    name = "mcm"

    temperature: Positive = 1.0

    def score(self, bank: FeatureBank) -> Tensor:
        """-max softmax, ``[N]`` in [-1, -1/C]."""
        norms = bank.features[:1000].norm(dim=1)
        if bool((norms - 1).abs().max() > 1e-2) or bool(bank.head_bias.any()):
            raise DetectorRefusal(
                f"{self.name} needs normalised features and a head of texts: choose model=clip or "
                "prompt=..., or remove it"
            )
        return -_of_bank(bank, self.temperature)


def _of_bank(bank: FeatureBank, temperature: float) -> Tensor:
    texts = on_device(bank.head_weight).double()
    return map_rows(
        lambda f: concept_matching(f, texts, temperature), bank.features, width=len(texts)
    )


@with_settings
class LMCM(NetworkDetector):
    """Only the local term of :class:`GLMCM`.

    Args:
        temperature: T > 0.
    """

    name = "l_mcm"

    temperature: Positive = 1.0

    @cached_property
    def extraction_hook(self) -> LocalMCMColumn:
        """The local term."""
        return LocalMCMColumn(self.temperature)

    def score(self, bank: FeatureBank) -> Tensor:
        """-local, ``[N]`` in [-1, 0)."""
        return -self.values(bank).double()


@with_settings
class GLMCM(LMCM):
    r"""Negative sum of global and local concept matching (GL-MCM, arXiv:2304.04521).

    .. math::
        s(x) = -\max_c \mathrm{softmax}(\cos(f, t_c) / T)_c
        - \lambda \max_{i, c} \mathrm{softmax}(\cos(f_i, t_c) / T)_c

    over the regions i (:meth:`ood_lab.clip.ClipModel.image_features_and_local`). The authors' code
    takes λ = 1, their script for ImageNet 0.5. Nothing is fitted.

    Args:
        temperature: T > 0.
        weight: λ.
    """

    name = "gl_mcm"

    weight: float = 1.0

    def score(self, bank: FeatureBank) -> Tensor:
        """-(global + λ local), ``[N]`` in [-1 - λ, 0)."""
        return self.weight * super().score(bank) - _of_bank(bank, self.temperature)
