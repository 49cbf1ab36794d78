"""The backbone contract: ``forward(image) -> Output(logits, features)``, and a ``head`` if any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor, nn

from ood_lab.common.files import StrPath
from ood_lab.common.tensor_file import Tensors, Transform
from ood_lab.models.forward_hooks import watched
from ood_lab.models.head_kind import OF_NETWORKS, HeadKind, Part, parts_of
from ood_lab.models.output import Output
from ood_lab.models.weights import load_weights

#: What a network expects of its images, in timm's words: ``input_size``, ``mean``, ``std``, ...
DataConfig = dict[str, Any]


class KeyedModule(nn.Module):
    """A module that says which of its attributes change none of its outputs.

    Attributes:
        neutral: their names; all others are part of the key of cached features.
    """

    neutral: ClassVar[frozenset[str]] = frozenset()


class AddedLayers(KeyedModule):
    """What a training objective adds to a network, as evaluation reads it.

    Attributes:
        own_score: the detector of ``conf/detector`` that is :meth:`score`; empty = none.
        probed: training does not change the head: a linear one is fitted on ID train, for the
            accuracy and for detectors that read logits.
    """

    own_score: ClassVar[str] = ""
    probed: ClassVar[bool] = False

    def output(self, output: Output) -> Output:
        """What the network gives, of what it gives without these layers."""
        return output

    def score(self, backbone: Backbone, image: Tensor, output: Output) -> Tensor:
        """Outlier score of images ``[B, 3, H, W]``, ``[B]``, higher = more OOD."""
        raise NotImplementedError


class Backbone(KeyedModule):
    """A network that gives features, logits, or both; ``head`` is a linear last step, if any.

    What holds, ``head(features) == logits`` (atol 1e-4) first of all, is checked when the backbone
    is built.

    Attributes:
        name: what messages call it.
        head: the last linear layer, ``[C, D]``; None where none makes the logits.
        widths: of features and logits ``(D, C)``, 0 where it gives none, as the check found them.
        normalised: the check found logarithms of probabilities.
        data_config: keyword arguments of ``timm.data.create_transform`` that the weights expect
            (``input_size (3, H, W)``, ``mean``, ``std``, ``interpolation``, ``crop_pct``,
            ``crop_mode``).
        transform: the evaluation transform, PIL image -> ``[3, H, W] float32``.
        transform_overrides: the entries of ``data_config`` that differ from what the weights were
            made with; results are stamped with them.
        fresh_head: it is new, the weights of all else are those of a file.
        fitted_head: how the head, which is zero, is fitted on ID train; None where it is not.
        differentiable: gradients reach the image, and sub-modules have outputs to be read.
        label_classes: number of classes of the data, where the head has others; None where a label
            of the data is the number of a logit.
        multilabel: its classes do not exclude each other: each logit is that of a sigmoid.
        chance: what its output depends on in addition to the image, where the user accepts that.
        text_head: the head is made of texts that name the classes (``clip.TextHead``).
        outputs: names of its logits, where the network comes with them.
        arguments: what the code of a user was called with, as JSON; they key its features.
        objective: what its training has added; None of cross-entropy.
    """

    neutral = frozenset(
        {"name", "transform", "data_config", "transform_overrides", "label_classes", "chance"}
        | {"fresh_head"}
    )

    name: str = "backbone"
    head: nn.Linear | None
    widths: tuple[int, int] = (0, 0)
    normalised: bool = False
    data_config: DataConfig
    transform: Transform
    transform_overrides: DataConfig
    fresh_head: bool = False
    fitted_head: str | None = None
    differentiable: bool = True
    text_head: bool = False
    label_classes: int | None = None
    multilabel: bool = False
    chance: str | None = None
    outputs: Sequence[str] = ()
    arguments: str = ""
    objective: AddedLayers | None

    def __init__(self) -> None:
        super().__init__()
        self.objective = None

    @property
    def num_features(self) -> int:
        """D, 0 where it gives no features."""
        return self.head.in_features if self.head is not None else self.widths[0]

    @property
    def num_classes(self) -> int:
        """C, 0 where it gives no logits."""
        return self.head.out_features if self.head is not None else self.widths[1]

    @property
    def gives(self) -> frozenset[Part]:
        """What detectors may read of it."""
        parts = parts_of(
            self.num_features,
            self.num_classes,
            self.head is not None,
            self.normalised,
            self.label_classes is None,
        )
        return parts | OF_NETWORKS if self.differentiable else parts

    @property
    def kind(self) -> HeadKind:
        """How its logits follow from its features."""
        return HeadKind.of(self.gives)

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to ``Output(logits [B, C], features [B, D])``."""
        raise NotImplementedError

    def add(self, layers: AddedLayers) -> None:
        """Makes ``layers`` a part of the network, in place of such that it has."""
        if self.objective is None:
            self.register_forward_hook(_added)
        self.objective = layers

    def drop_head(self) -> None:
        """Its last layer makes the logits no more: ``head`` is None, and is not trained."""
        self.freeze_head()
        self.head = None

    def freeze_head(self) -> None:
        """No gradient reaches the last layer."""
        if self.head is not None:
            self.head.requires_grad_(False)

    def load(self, path: StrPath) -> None:
        """Takes the weights of a checkpoint, see :func:`~ood_lab.models.weights.load_weights`."""
        load_weights(self, path)

    @contextmanager
    def capture(self, layers: Sequence[str]) -> Iterator[Tensors]:
        """Collects the outputs of the named sub-modules during forward passes.

        Yields a dict that holds, after each forward, ``{layer: output}`` of that forward. Names
        are those of ``self.named_modules()``.
        """
        maps: Tensors = {}
        with watched(self, layers, after=maps.__setitem__):
            yield maps


def _added(backbone: Backbone, args: Any, output: Output) -> Output:
    assert backbone.objective is not None
    return backbone.objective.output(output)


def linear_of(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A linear layer of tensors ``[C, D]`` and ``[C]``, through which gradients flow to them."""
    head = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    del head.weight, head.bias
    head.weight, head.bias = weight, bias  # type: ignore[assignment]  # no parameters of its own
    return head
