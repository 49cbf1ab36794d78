"""Any network as a :class:`Backbone`, by the name of its last linear layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.common.hints import nearest
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output, logits_of


class WrappedBackbone(Backbone):
    """``net`` with its features caught at the input of the last linear layer.

    ``logits = net(image)`` and ``features`` = the tensor that ``net`` gave to ``head`` in the same
    pass, so nothing is computed twice and the network's own code stays in charge. The hook lives
    for one call only: the module can be copied, pickled and put into DDP at any time, and no
    activation outlives its pass.

    Args:
        net: maps ``[B, 3, H, W]`` to logits ``[B, C]``.
        head: name of the last linear layer, as in ``net.named_modules()``.
        name: what messages call it; the class name of ``net`` by default.

    Raises:
        UserError: ``net`` has no linear layer of that name.
    """

    def __init__(self, net: nn.Module, head: str, name: str | None = None) -> None:
        super().__init__()
        self.name = name or type(net).__name__
        _check_head_name(net, head, self.name)
        self.net = net
        self.head_name = head
        self.transform_overrides = {}

    @property
    def head(self) -> nn.Linear:  # type: ignore[override]  # an alias would double the state dict
        """The last linear layer of ``net``, ``[C, D]``."""
        head = self.net.get_submodule(self.head_name)
        assert isinstance(head, nn.Linear)
        return head

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to ``Output(logits [B, C], features [B, D])``."""
        with _inputs_of(self.head) as inputs:
            logits = logits_of(self.net(image))
        if not isinstance(logits, Tensor):
            raise UserError(
                f"{self.name} returns {_describe(logits)} instead of one logits tensor [B, C]: "
                "switch its auxiliary outputs off, or wrap it in a module that returns the logits"
            )
        if not inputs:
            raise UserError(
                f"the head '{self.head_name}' of {self.name} does not run in its forward pass: "
                "name the layer that makes the logits"
            )
        return Output(logits=logits, features=inputs[-1])


@contextmanager
def _inputs_of(layer: nn.Module) -> Iterator[list[Tensor]]:
    inputs: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs.append(args[0] if args else kwargs["input"])

    handle = layer.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield inputs
    finally:
        handle.remove()


def _check_head_name(net: nn.Module, head: str, name: str) -> None:
    linear = [key for key, module in net.named_modules() if isinstance(module, nn.Linear) and key]
    if head in linear:
        return
    if not linear:
        raise UserError(
            f"{name} has no nn.Linear inside, but the last layer of a backbone must be one: if it "
            "gives features, model.head=linear|nearest_mean fits a head on ID train"
        )
    found = dict(net.named_modules()).get(head)
    near = nearest(head, linear, 3, 0.3) or linear[-3:]
    problem = "it has no such layer" if found is None else f"that is a {type(found).__name__}"
    raise UserError(
        f"'{head}' is not a linear layer of {name} ({problem}); nearest: {', '.join(near)}"
    )


def _describe(value: object) -> str:
    if isinstance(value, tuple | list):
        parts = ", ".join(
            str(list(v.shape)) if isinstance(v, Tensor) else type(v).__name__ for v in value
        )
        return f"a {type(value).__name__} ({parts})"
    return f"a {type(value).__name__}"
