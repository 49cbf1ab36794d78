"""ID-like (arXiv:2311.15243): outliers cropped from the ID images themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Unpack

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.optim import Optimizer
from torchvision.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop

from ood_lab.clip import zero_shot_weights
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.models.training.classifier import Schedule
from ood_lab.prompts.backbone import IDLikeBackbone
from ood_lab.prompts.coop import PromptLearner

#: Floor of the probability in the outlier loss.
_EPSILON = 1e-16
#: Views encoded at a time.
_CHUNK = 256


class OutlierOutput(NamedTuple):
    """Of ID crops and of outlier crops, over the C classes and then the N outlier prompts.

    Attributes:
        logits: ``[R, C]``, of the ID crops, only over the classes.
        inside: ``[R, C + N]``, of the ID crops.
        outside: ``[R, C + N]``, of the outlier crops.
        outlier_texts: ``[N, d]``, normalised.
    """

    logits: Tensor
    inside: Tensor
    outside: Tensor
    outlier_texts: Tensor


def select_views(similarity: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Rows of the n views most and of the n least like their class, of ``similarity [B, V]``."""
    return similarity.topk(n, dim=1).indices, similarity.topk(n, dim=1, largest=False).indices


def outlier_loss(logits: Tensor, classes: int) -> Tensor:
    """``mean log(P + 1e-16)``, ``P = Σ_{c<=C} softmax_c``: how much outliers look like a class.

    Args:
        logits: ``[R, C + N]``.
        classes: C.
    """
    log_p = logits[:, :classes].logsumexp(dim=1) - logits.logsumexp(dim=1)
    floor = torch.full_like(log_p, _EPSILON).log()
    return torch.logaddexp(log_p, floor).mean()


def diversity_loss(texts: Tensor) -> Tensor:
    """Mean over pairs of ``max(0, cos)`` of ``texts [N, d]`` (normalised); 0 for one text."""
    n = len(texts)
    cosines = (texts @ texts.T).triu(diagonal=1).clamp(min=0)
    return cosines.sum() / max(1, n * (n - 1) // 2)


class IDLike(PromptLearner):
    """``CE(inside, y) + outlier_weight · L_out + diversity_weight · L_div``.

    Every training image comes as many random views (:class:`RandomViews`). Of the views of an
    image, the ``n_selected`` most like the text of its class, by the frozen CLIP, are ID crops;
    the least like it are outliers. ``L_out`` is :func:`outlier_loss` of the latter, ``L_div``
    :func:`diversity_loss` of the outlier prompts, and the cross-entropy is over classes and
    outlier prompts together. Nothing can be kept from one epoch to the next, as the views change.
    The validation loss is the cross-entropy over only the classes.

    In several processes all terms are means over equal numbers of crops, so that the numbers are
    those of one process with the whole batch, up to rounding and to the order of the images.

    Args:
        backbone: with outlier prompts.
        optimizer: see :class:`Classifier`.
        schedule: of the learning rate.
        n_selected: ID crops, and outlier crops, of an image.
        outlier_weight: of ``L_out``.
        diversity_weight: of ``L_div``.
    """

    backbone: IDLikeBackbone
    selectors: Tensor

    def __init__(
        self,
        backbone: IDLikeBackbone,
        optimizer: Callable[..., Optimizer],
        n_selected: int = 32,
        outlier_weight: float = 0.3,
        diversity_weight: float = 0.2,
        **schedule: Unpack[Schedule],
    ) -> None:
        super().__init__(backbone, optimizer, **schedule)
        self.n_selected = n_selected
        self.outlier_weight = outlier_weight
        self.diversity_weight = diversity_weight
        texts = zero_shot_weights(backbone.clip, backbone.classnames)
        self.register_buffer("selectors", texts, persistent=False)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Returns the loss over the selected views."""
        return super().training_step(self._selected(batch), batch_idx)

    @torch.no_grad()
    def _selected(self, batch: Batch) -> Tensors:
        """Features ``inside``, ``outside [R, d]`` of the crops; ``label [R]`` of the former."""
        views, labels = split_views(batch["image"]), batch["label"]
        if views.shape[1] < 2 * self.n_selected:
            raise UserError(
                f"{views.shape[1]} views of an image cannot hold {self.n_selected} ID crops and as "
                "many others: set model.geometry.0.n to twice model.classifier.n_selected at least"
            )
        encode = self.backbone.clip.encode_image
        features = torch.cat([encode(part) for part in views.flatten(0, 1).split(_CHUNK)])
        features = features.unflatten(0, views.shape[:2])
        similarity = (features @ self.selectors[labels][:, :, None]).squeeze(2)
        crops = [
            features.take_along_dim(rows[:, :, None], dim=1).flatten(0, 1)
            for rows in select_views(similarity, self.n_selected)
        ]
        label = labels.repeat_interleave(self.n_selected)
        return {"inside": crops[0], "outside": crops[1], "label": label}

    def train_outputs(self, batch: Batch) -> OutlierOutput:
        """Logits of all crops, from one pass of the text tower over all prompts of a kind."""
        clip, classes = self.backbone.clip, len(self.backbone.classnames)
        outliers = self.backbone.outliers.features(clip)
        texts = torch.cat([self.backbone.prompts.features(clip), outliers])
        inside, outside = (self.scaled(batch[key], texts) for key in ("inside", "outside"))
        return OutlierOutput(inside[:, :classes], inside, outside, outliers)

    def losses(self, outputs: Output | OutlierOutput, batch: Batch) -> Tensors:
        """In training the three weighted terms, else the cross-entropy over the classes."""
        if not isinstance(outputs, OutlierOutput):
            return super().losses(outputs, batch)
        classes = outputs.logits.shape[1]
        return {
            "ce": F.cross_entropy(outputs.inside, batch["label"]),
            "outlier": self.outlier_weight * outlier_loss(outputs.outside, classes),
            "diversity": self.diversity_weight * diversity_loss(outputs.outlier_texts),
        }


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
    """

    name = "idlike"
    extraction_hook = IDLikeColumn()

    def score(self, bank: FeatureBank) -> Tensor:
        """-log-odds, ``[N]``."""
        return -self.values(bank).double()


class RandomViews:
    """Random crops of an image (8% to all of its area) and flips, stacked below each other.

    One tall image passes through normalisation and batching like any other;
    :func:`split_views` takes it apart again.

    Args:
        n: number of views.
        size: of a view in pixels.
    """

    def __init__(self, n: int, size: int) -> None:
        self.n = n
        self.size = size
        self.view = Compose([RandomResizedCrop(size, (0.08, 1.0)), RandomHorizontalFlip()])

    def __call__(self, image: Image.Image) -> Image.Image:
        """Maps an RGB image to one of ``size`` x ``n·size`` pixels."""
        stack = Image.new("RGB", (self.size, self.n * self.size))
        for i in range(self.n):
            stack.paste(self.view(image), (0, i * self.size))
        return stack


def split_views(images: Tensor) -> Tensor:
    """Maps ``images [B, 3, V·S, S]`` to their square views ``[B, V, 3, S, S]``."""
    side = images.shape[3]
    return images.unflatten(2, (-1, side)).transpose(1, 2)
