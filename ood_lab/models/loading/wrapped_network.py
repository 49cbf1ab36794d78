"""Any network as a :class:`Backbone`: what of its forward pass are features, and what logits."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ood_lab.common.english import listed
from ood_lab.common.errors import UserError
from ood_lab.common.hints import nearest
from ood_lab.models.backbone import Backbone, linear_of
from ood_lab.models.forward_hooks import watched
from ood_lab.models.output import Output, as_logits, entry_of, one_vector

#: What ``model.head`` calls a network whose features are all that is read, and ``model.features``
#: what the network returns.
NO_HEAD, OUTPUT = "none", "output"
#: What stands for a name: Hugging Face's for outputs that have none, and WordNet's of ImageNet.
_CODE = re.compile(r"label\d+|n\d{8}")
_log = logging.getLogger(__name__)
#: Before a keyword where a layer of the network has its name.
KEYWORD = "keyword:"


@dataclass(frozen=True)
class Reading:
    """What is read of a forward pass.

    Attributes:
        heads: linear layers, or 1 x 1 convolutions, the mean of which makes the logits; those of a
            group have the same input. The features are the inputs of all groups, concatenated.
        layers: that give the features where there is no head, concatenated.
        of_input: their inputs do, else their outputs.
        features: the entry of the network's output that is the features instead.
        output: the entry that is the logits; None = the only one.
        logits: False = what the network returns are features.
        probabilities: see :func:`~ood_lab.models.output.probabilities`; of linear layers before
            the softmax, the logits are what these give.
        one_logit: the only logit z stands for two classes, [0, z].
        order: of the outputs without a head: logit i is output ``order[i]``; None = in their order.
    """

    heads: tuple[tuple[str, ...], ...] = ()
    layers: tuple[str, ...] = ()
    of_input: bool = False
    features: str | None = None
    output: str | None = None
    logits: bool = True
    probabilities: str | None = None
    one_logit: bool = False
    order: tuple[int, ...] | None = None

    @property
    def plain(self) -> bool:
        """One linear layer makes what the network returns."""
        return self == Reading(heads=self.heads) and len(self.names) == 1

    @property
    def names(self) -> list[str]:
        """All layers of the head."""
        return [name for group in self.heads for name in group]

    @property
    def place(self) -> str:
        """Where the features are, in words, where they are not the input of a head."""
        if not self.layers:
            return f"entry '{self.features}' of its output" if self.features else "its output"
        where = f"the {'input' if self.of_input else 'output'} of "
        instead = f" (model.features={OUTPUT} takes what it returns)"
        instead = instead if self.of_input and not self.logits else ""
        return where + ", ".join(f"layer {name!r}" for name in self.layers) + instead

    @property
    def told(self) -> str | None:
        """What a user should know of it; None of a head that is one linear layer."""
        if not self.logits:
            return f"it gives features only: {self.place}"
        if self.heads:
            if self.probabilities:
                return (
                    f"it returns probabilities ({self.probabilities}); what "
                    f"{listed(self.names)} gives serves as logits"
                )
            two = "its only logit z is read as [0, z]" if self.one_logit else None
            return two if len(self.names) == 1 else f"its head is the mean of {listed(self.names)}"
        located = self.layers or self.features
        gives = f"features: {self.place}" if located else "no features are read"
        if self.probabilities:
            what, last = "logarithms", "softmax"
            if self.probabilities == "sigmoid":
                what, last = "log odds", "sigmoid"
            return (
                f"it returns probabilities ({self.probabilities}); their {what} serve as "
                f"logits; {gives}. Without the {last} in its forward pass, all detectors run"
            )
        return f"no linear head makes its logits; {gives}"


def read(net: nn.Module, reading: Reading, image: Tensor, name: str) -> Output:
    """One forward pass: ``Output(logits [B, C], features [B, D])``, see :class:`Reading`.

    Raises:
        UserError: a layer that does not run, or features that are no vector an image.
    """
    layers = [group[0] for group in reading.heads] or reading.layers
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Any] = {}
    with watched(net, layers, inputs.__setitem__, outputs.__setitem__):
        returned = net(image)
    vectors = []
    if layers:
        if missing := [layer for layer in layers if layer not in inputs]:
            what = "head" if reading.heads else "layer"
            raise UserError(
                f"the {what} '{missing[0]}' of {name} does not run in its forward pass: name the "
                "layer that makes the logits"
            )
        if reading.of_input or reading.heads:
            vectors = [inputs[layer] for layer in layers]
        else:
            vectors = [entry_of(outputs[layer], None, layer, "features") for layer in layers]
    elif reading.features or not reading.logits:
        vectors = [entry_of(returned, reading.features, name, "features")]
    features = _joined(vectors, name) if vectors else None
    if not reading.logits:
        assert features is not None  # it gives nothing else
        return Output(features.new_zeros(len(features), 0), features)
    logits = entry_of(returned, reading.output, name)
    if reading.probabilities or reading.one_logit:
        logits = as_logits(logits, reading.probabilities)
    if reading.order is not None:
        logits = logits[:, list(reading.order)]
    return Output(logits, logits.new_zeros(len(logits), 0) if features is None else features)


def _joined(parts: Sequence[Tensor], name: str) -> Tensor:
    """One vector an image of all parts, ``[B, D]``."""
    if len(parts) == 1 and parts[0].ndim == 2:
        return parts[0]
    vectors = [one_vector(part) for part in parts]
    if any(vector is None for vector in vectors):
        raise UserError(
            f"{name} gives features {list(parts[0].shape)}: one vector an image is needed, "
            "[B, D]; model.features=KEY|LAYER chooses it"
        )
    return torch.cat(vectors, dim=1)  # type: ignore[arg-type]


class WrappedBackbone(Backbone):
    """``net`` with features and logits read in one forward pass.

    With a head, ``features`` = the tensor that ``net`` gave to ``head`` in the same pass, so
    nothing is computed twice and the network's own code stays in charge. The hook lives for one
    call only: the module can be copied, pickled and put into DDP at any time, and no activation
    outlives its pass.

    Args:
        net: maps ``[B, 3, H, W]`` to logits ``[B, C]``, or to what holds them.
        head: name of the last linear layer, as in ``net.named_modules()``; or what is read.
        name: what messages call it; the class name of ``net`` by default.

    Raises:
        UserError: ``net`` has no linear layer of that name.
    """

    def __init__(self, net: nn.Module, head: str | Reading, name: str | None = None) -> None:
        super().__init__()
        self.name = name or type(net).__name__
        self.reading = head if isinstance(head, Reading) else Reading(heads=((head,),))
        for layer in self.reading.names:
            _check_head_name(net, layer, self.name)
        self.net = net
        self.transform_overrides = {}

    @property
    def head(self) -> nn.Linear | None:  # type: ignore[override]  # an alias doubles the state dict
        """The last linear layer, ``[C, D]``, or one that does what several do; None without."""
        reading = self.reading
        groups = [[self.net.get_submodule(name) for name in group] for group in reading.heads]
        if not groups:
            return None
        if len(groups) == len(groups[0]) == 1 and not reading.one_logit:
            (last,) = groups[0]
            if isinstance(last, nn.Linear):
                return last
        n, parts = len(reading.names), [part for group in groups for part in group]
        summed = [torch.stack([_weight(part) for part in group]).sum(dim=0) for group in groups]
        weight = torch.cat(summed, dim=1) / n
        bias = torch.stack([_bias(part) for part in parts]).sum(dim=0) / n
        if reading.one_logit:
            weight, bias = (torch.cat([torch.zeros_like(v), v]) for v in (weight, bias))
        return linear_of(weight, bias)

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to ``Output(logits [B, C], features [B, D])``."""
        output = read(self.net, self.reading, image, self.name)
        if self.reading.probabilities and (head := self.head) is not None:
            return output._replace(logits=head(output.features))
        return output

    def drop_head(self) -> None:
        """Features stay the input of the last layer, or of the last layers."""
        self.freeze_head()
        layers = tuple(group[0] for group in self.reading.heads)
        self.reading = replace(self.reading, heads=(), layers=layers, of_input=True)

    def match_outputs(self, classes: Sequence[str]) -> None:
        """Puts the logits into the order of the classes, where :attr:`outputs` are these by name.

        The rows of a head are moved; other outputs are where they are read. Names that differ are
        reported. Case, spaces, dashes and underscores do not count.
        """
        ours = {_plain_name(name): i for i, name in enumerate(self.outputs)}
        theirs = [_plain_name(name) for name in classes]
        if len(theirs) != len(self.outputs) or all(map(_CODE.fullmatch, ours)):
            return
        if sorted(ours) != sorted(theirs):
            if all(map(_CODE.fullmatch, theirs)):
                return
            _log.warning(
                "%s calls its outputs %s, your classes are %s: output i is taken as class i",
                self.name,
                listed(list(self.outputs)[:4]),
                listed(list(classes)[:4]),
            )
            return
        order = [ours[name] for name in theirs]
        if order == sorted(order):
            return
        self.outputs = [self.outputs[i] for i in order]
        _log.warning(
            "%s has its outputs in another order than your classes: they are matched by name",
            self.name,
        )
        with torch.no_grad():
            for layer in {self.net.get_submodule(name) for name in self.reading.names}:
                for rows in layer.parameters():
                    rows.copy_(rows[order].clone())
        if not self.reading.heads:
            self.reading = replace(self.reading, order=tuple(order))

    def extra_repr(self) -> str:
        """What is read, where that is no single head: it keys the features."""
        return "" if self.reading.plain else repr(self.reading)


def _plain_name(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())


def _weight(layer: nn.Module) -> Tensor:
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return weight.flatten(1)


def _bias(layer: nn.Module) -> Tensor:
    bias: Tensor | None = layer.bias  # type: ignore[assignment]
    return _weight(layer).new_zeros(len(_weight(layer))) if bias is None else bias


def _check_head_name(net: nn.Module, head: str, name: str) -> None:
    linear = [key for key, module in net.named_modules() if isinstance(module, nn.Linear) and key]
    layer = dict(net.named_modules()).get(head)
    if head in linear or is_pointwise(layer):
        return
    if not linear:
        raise UserError(
            f"{name} has no nn.Linear inside, so that '{head}' is none: model.head=null finds out "
            "what it gives; if it gives features, model.head=linear|nearest_mean fits a head on ID "
            "train, and model.head=none takes only them"
        )
    near = nearest(head, linear, 0.3) or linear[-3:]
    problem = "it has no such layer" if layer is None else f"that is a {type(layer).__name__}"
    raise UserError(
        f"'{head}' is not a linear layer of {name} ({problem}); nearest: {', '.join(near)}"
    )


def is_pointwise(layer: nn.Module | None) -> bool:
    """Whether a convolution is a linear layer at every position."""
    return (
        isinstance(layer, nn.Conv2d)
        and layer.groups == 1
        and {*layer.kernel_size, *layer.stride} == {1}
        and not any(layer.padding)
    )
