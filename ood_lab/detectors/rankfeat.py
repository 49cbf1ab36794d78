"""RankFeat: energy after removing the strongest rank-one part of the last feature maps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ood_lab.common.arguments import Positive
from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import Cost, DetectorRefusal, with_settings
from ood_lab.detectors.support.layer_probe import ChosenLayers, Probe
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.features.bank import FeatureBank
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.models.trial_passes import evaluating

#: Power iteration takes 2^6 steps.
SQUARINGS = 6


def top_component(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The rank-one part σ₁u₁v₁ᵀ of every matrix, as a pair whose outer product it is.

    Power iteration on the smaller of M Mᵀ and Mᵀ M by repeated squaring, 2^:data:`SQUARINGS` steps.
    The eigenvector is then any column; the one with the largest diagonal entry is taken, so
    that there is no start vector to choose and nothing random.

    Args:
        matrix: ``[B, C, P]``; with k squarings the error is of order (σ₂/σ₁)^(2^(k+1)).

    Returns:
        ``([B, C], [B, P])``.
    """
    wide = matrix.shape[1] <= matrix.shape[2]
    gram = matrix @ matrix.mT if wide else matrix.mT @ matrix
    tiny = torch.finfo(gram.dtype).tiny
    for _ in range(SQUARINGS):
        gram = gram / gram.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None].clamp_min(tiny)
        gram = gram @ gram
    column = gram.diagonal(dim1=1, dim2=2).argmax(dim=1)
    vector = F.normalize(gram[torch.arange(len(gram), device=gram.device), :, column], dim=1)
    if wide:
        return vector, (vector[:, None] @ matrix)[:, 0]
    return (matrix @ vector[..., None])[..., 0], vector


class RankFeatColumn(ChosenLayers):
    """Logits after the removal, ``[B, 2, C]``: at the last stage, at the one before.

    ``[B, 1, C]`` (last stage only) without fusion.

    Args:
        stages: names of the sub-modules [previous, last]; None = found in the backbone.
        fusion: with the previous stage, after whose change the last stage is run again.
    """

    owner = "rankfeat"
    setting = "stages"

    def __init__(self, stages: Sequence[str] | None, fusion: bool) -> None:
        self.fusion, self.least = fusion, 2 if fusion else 1
        super().__init__("found" if stages is None else stages[-self.least :])
        self.key = f"rankfeat(stages={self.chosen},fusion={fusion})"

    def choose(self, backbone: Backbone, maps: Tensors) -> list[str]:
        """[previous, last] stage, or [last] without fusion."""
        return super().choose(backbone, maps)[-self.least :]

    def accept(self, backbone: Backbone, seen: Probe) -> None:
        """Checks that logits can be computed from changed maps.

        Raises:
            DetectorRefusal: the features are not the spatial mean of the last stage, or running
                the last stage on the previous one's output does not reproduce it.
        """
        last = seen.maps[self.names[-1]]
        pooled = last.mean(dim=(2, 3)) if last.ndim == 4 else last
        if not _nearly_equal(pooled, seen.output.features):
            problem = f"the features are not the spatial mean of '{self.names[-1]}' [B, C, H, W]"
        elif self.fusion and not _reruns(backbone, self.names, seen.maps):
            problem = (
                f"'{self.names[1]}' cannot be run on only the output of '{self.names[0]}' (use the "
                "last stage only with detector.rankfeat.fusion=false)"
            )
        else:
            return
        raise DetectorRefusal(
            f"rankfeat: {problem}; name the stages with "
            "detector.rankfeat.stages=[previous,last] or remove it from detector=[...]"
        )

    @torch.no_grad()
    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """``layers`` must have been called before on this backbone."""
        channels, positions = self._top(maps[self.names[-1]])
        removed = channels * positions.mean(dim=1, keepdim=True)
        features = [output.features.float() - removed]
        if self.fusion:
            previous = maps[self.names[0]]
            channels, positions = self._top(previous)
            component = (channels[:, :, None] * positions[:, None]).view(previous.shape)
            rest = (previous.float() - component).to(previous.dtype)
            features.append(_rerun(backbone, self.names, rest).float().mean(dim=(2, 3)))
        with full_precision(image):
            head = backbone.head
            assert head is not None  # it is read
            bias = None if head.bias is None else head.bias.float()
            return F.linear(torch.stack(features, dim=1), head.weight.float(), bias)

    def _top(self, map_: Tensor) -> tuple[Tensor, Tensor]:
        # Half precision would round the singular vectors to three digits.
        with full_precision(map_):
            return top_component(map_.float().flatten(2))


def _between(backbone: Backbone, names: list[str]) -> list[nn.Module]:
    """Modules that lead from the first name's output to the last's, if they are siblings."""
    previous, last = names
    parent = last.rpartition(".")[0]
    siblings = [
        f"{parent}.{n}" if parent else n for n, _ in backbone.get_submodule(parent).named_children()
    ]
    if previous not in siblings:
        return [backbone.get_submodule(last)]
    path = siblings[siblings.index(previous) + 1 : siblings.index(last) + 1]
    return [backbone.get_submodule(name) for name in path]


def _rerun(backbone: Backbone, names: list[str], map_: Tensor) -> Tensor:
    for module in _between(backbone, names):
        map_ = module(map_)
    return map_


def _reruns(backbone: Backbone, names: list[str], maps: Tensors) -> bool:
    """Whether the last stage can be run again on the output of the one before."""
    try:
        with evaluating(backbone):
            again = _rerun(backbone, names, maps[names[0]])
    except (RuntimeError, TypeError):  # wrong shape, or a module of several inputs
        return False
    return _nearly_equal(again, maps[names[1]])


def _nearly_equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    return (a - b).abs().max().item() <= 1e-3 * b.abs().max().item()


@with_settings
class RankFeat(NetworkDetector):
    r"""Negative energy after removing the top singular component (arXiv 2209.08590).

    .. math::
        s = -T\,\mathrm{LSE}\big(\tfrac{z_4 + z_3}{2T}\big), \qquad
        z_4 = W(x - \mathrm{mean}_{HW}\,\sigma_1 u_1 v_1^\top) + b

    where z_4 changes the last stage's map ``[C, HW]`` and z_3 that of the stage before, after
    which the last stage is run again. The form of z_4 holds where x is the spatial mean of the
    map, which is checked, as is that the last stage can be run again; else it is rejected. The
    singular vectors come from power iteration (2^6 steps): no full SVD. pytorch-ood's version
    has no fusion, needs the network cut in two and one more forward, and takes the full SVD.

    Args:
        temperature: T > 0.
        fusion: use both stages (the paper's default); False = the last one only.
        stages: names of the sub-modules [previous, last]; None = found in the backbone.
    """

    reads = ("features", "head", "maps")
    formula = "energy without the strongest rank-one part of the last maps"
    suspicious = "the energy is small without the strongest direction of the feature maps"

    temperature: Positive = 1.0
    fusion: bool = True
    stages: Sequence[str] | None = None

    @cached_property
    def extraction_hook(self) -> RankFeatColumn:
        """The logits without the top components."""
        return RankFeatColumn(self.stages, self.fusion)

    @property
    def cost(self) -> Cost:
        """With fusion, a part of the network runs again."""
        return "again" if self.fusion else "forward"

    def score(self, bank: FeatureBank) -> Tensor:
        """−T·LSE of the mean logits over T."""
        logits = self.values(bank).double().mean(dim=1)
        return -self.temperature * (logits / self.temperature).logsumexp(dim=1)
