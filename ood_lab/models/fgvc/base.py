"""What the fine-grained methods share: a pyramid trunk, a linear head, two learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from timm.data import resolve_model_data_config
from torch import Tensor, nn

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.backbone import Backbone, linear_of
from ood_lab.models.fgvc.label_tree import require
from ood_lab.models.fgvc.layers import known_cross_entropy
from ood_lab.models.head_check import check_contract
from ood_lab.models.image_transforms import TransformSettings, set_transform, transform_options
from ood_lab.models.loading.timm_networks import create_timm
from ood_lab.models.output import Output
from ood_lab.models.training.classifier import Classifier
from ood_lab.models.weights import check_one_source, load_weights
from ood_lab.models.weights_formats import Checkpoint
from ood_lab.schema.label_space import LabelSpace


class FGVCNet(Backbone):
    """A timm feature pyramid with a method's heads on top.

    A method sets the class attributes, adds its layers in :meth:`add_heads`, and defines
    :attr:`head` and :meth:`forward` (the test path, deterministic in eval mode), which by default
    is that of :meth:`train_outputs`.

    Attributes:
        method: name in messages.
        strides: of the maps that :meth:`maps` returns, fine to coarse.
        needs: which further labels the method trains on, see :func:`require`.
        level_heads: names of the sub-modules whose outputs, in any forward pass, are the logits
            of the levels above the classes, coarse to fine; empty = the method has none.
        category_head: the same for the category; None = the method has none.
        labels: sizes and hierarchy of the labels.
        channels: channels of the maps.

    Args:
        name: timm model with a feature pyramid.
        num_classes: C; the run fills it in.
        labels: fields of :class:`LabelSpace`; None = only classes.
        kwargs: passed to ``timm.create_model``.
        pretrained: take timm's weights for the trunk.
        trunk_weights: take the trunk's weights from this file instead, see :func:`pyramid`.
        weights: file with the weights of the whole method.
        input_size: pixels; like all that follow, see ``timm_backbone``.
        mean: per channel.
        std: per channel.
        crop_pct: input_size / size of the resized image.
        crop_mode: ``squash`` resizes both sides alike.
        interpolation: ``bilinear``, ...
        settings: of the method, handed to :meth:`add_heads`.

    Raises:
        UserError: unknown model, missing strides or labels that the method needs, wrong weights.
    """

    method: str = "FGVC"
    strides: tuple[int, ...] = (32,)
    needs: tuple[str, ...] = ()
    level_heads: tuple[str, ...] = ()
    category_head: str | None = None
    head: nn.Linear
    OPTIONS: ClassVar = (TransformSettings,)

    def __init__(
        self,
        name: str,
        num_classes: int | None = None,
        labels: Settings | None = None,
        kwargs: Settings | None = None,
        pretrained: bool = False,
        trunk_weights: str | Path | None = None,
        weights: StrPath | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.name = f"{self.method} ({name})"
        if num_classes is None:
            raise UserError(
                f"{self.method} does not come with classes of its own: give a trained one with "
                "ckpt=<run folder or file>, or set model.backbone.num_classes"
            )
        self.labels = LabelSpace(**{**(labels or {}), "classes": num_classes})
        require(self.labels, self.method, self.needs)
        self.trunk, self.channels = pyramid(
            name, self.strides, self.method, pretrained, trunk_weights, kwargs
        )
        names = settings.keys() & TransformSettings.__annotations__
        options = transform_options(**{name: settings.pop(name) for name in names})
        self.add_heads(**settings)
        self.to(memory_format=torch.channels_last)
        data_config = resolve_model_data_config(self.trunk)
        if weights is not None:
            data_config |= load_weights(self, weights, self.name)
        set_transform(self, data_config, options)
        self.transform_overrides = {}
        check_contract(self)

    def add_heads(self) -> None:
        """Adds the layers of the method; reads ``channels`` and ``labels``."""
        raise NotImplementedError

    def maps(self, image: Tensor) -> list[Tensor]:
        """Feature maps ``[B, channels[i], H / strides[i], W / strides[i]]`` of the trunk."""
        return channels_first(self.trunk, self.trunk(image))

    def train_outputs(self, image: Tensor) -> Any:
        """What the losses need; has ``logits [B, C]``. By default the test path."""
        return self(image)

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to ``Output(logits [B, C], features [B, D])``."""
        output = self.train_outputs(image)
        return Output(output.logits, output.features)


class FGVCModule(Classifier):
    """Trains an :class:`FGVCNet`: a method overrides :meth:`losses`.

    Args:
        trunk_lr: learning rate of the trunk; None = as the new layers.
        **kwargs: see :class:`Classifier`; the ``lr`` of its optimiser is that of the new layers,
            and its ``label_smoothing`` is for methods that have no targets of their own.
    """

    backbone: FGVCNet

    def __init__(self, trunk_lr: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.trunk_lr = trunk_lr

    def outputs(self, batch: Batch) -> Any:
        """The method's training outputs, in validation too."""
        return self.backbone.train_outputs(batch["image"])

    def category_loss(self, category: Tensor | None, batch: Batch) -> Tensors:
        """``category``, the cross-entropy of a head that a network may have."""
        if category is None:
            return {}
        return {"category": known_cross_entropy(category, batch["category"], self.smoothing)}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The trunk with its own learning rate, then everything else."""
        trunk = list(self.backbone.trunk.parameters())
        trunk_ids = {id(p) for p in trunk}
        rest = [p for p in self.backbone.parameters() if id(p) not in trunk_ids]
        slower = {} if self.trunk_lr is None else {"lr": self.trunk_lr}
        return [{"params": trunk, **slower}, {"params": rest}]

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Adds the label space: a checkpoint can be rebuilt without its data."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["labels"] = dict(vars(self.backbone.labels))


def fused_head(heads: Sequence[nn.Linear]) -> nn.Linear:
    """One linear layer on concatenated features: ``sum_i heads[i](f_i)``.

    ``W [C, sum D_i]`` puts the weights side by side, the bias is the sum of the biases; gradients
    flow to the heads.
    """
    weight = torch.cat([head.weight for head in heads], dim=1)
    return linear_of(weight, torch.stack([head.bias for head in heads]).sum(0))


def pyramid(
    name: str,
    strides: Sequence[int],
    method: str,
    pretrained: bool = False,
    weights: StrPath | None = None,
    kwargs: Settings | None = None,
) -> tuple[nn.Module, list[int]]:
    """The network that yields the deepest map of each of ``strides``, and their channels.

    Args:
        name: timm model.
        strides: pixels between neighbours of a map, fine to coarse.
        method: who asks, for messages.
        pretrained: take timm's weights.
        weights: take those of this local file, saved by timm or torchvision: every tensor but
            the classifier's must fit.
        kwargs: passed to ``timm.create_model``.

    Raises:
        UserError: unknown model, no maps of these strides, or weights that are not to be had.
    """
    check_one_source(name, pretrained, weights, "model.trunk_weights")
    kwargs = dict(kwargs or {})
    probe: Any = create_timm(name, pretrained=False, features_only=True, **kwargs)
    reductions = list(probe.feature_info.reduction())
    if reductions[-1] != strides[-1] or not set(strides) <= set(reductions):
        wanted = ("strides are " if len(strides) > 1 else "stride is ") + _listed(strides)
        raise UserError(
            f"{method} needs a backbone whose last {wanted}; the maps of {name} have "
            f"{_listed(sorted(set(reductions)))}: choose a pyramid such as model.trunk=resnet50"
        )
    last = dict(zip(reductions, probe.feature_info.out_indices, strict=True))
    taps = tuple(last[stride] for stride in strides)
    trunk: Any = create_timm(name, pretrained, features_only=True, out_indices=taps, **kwargs)
    if weights is not None:  # of the whole network, where every tensor has a place
        network: Any = create_timm(name, pretrained=False, **kwargs)
        load_weights(network, weights, name, new_head=network.pretrained_cfg["classifier"])
        # timm writes stages.0 of the whole network as stages_0, or model.stages.0, in the pyramid.
        values = {_plain(key): value for key, value in network.state_dict().items()}
        trunk.load_state_dict({key: values[_plain(key)] for key in trunk.state_dict()})
    return trunk, list(trunk.feature_info.channels())


def channels_first(trunk: nn.Module, maps: Sequence[Tensor]) -> list[Tensor]:
    """The maps as ``[B, C, H, W]``; some networks (Swin) give ``[B, H, W, C]``."""
    if getattr(trunk, "output_fmt", None) == "NHWC":
        return [m.permute(0, 3, 1, 2) for m in maps]
    return list(maps)


def _plain(key: str) -> str:
    return key.removeprefix("model.").replace(".", "_")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
