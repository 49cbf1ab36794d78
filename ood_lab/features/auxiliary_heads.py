"""What the further heads of a network predict, read in the extraction pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


class HeadPredictions(BankColumn):
    """Most likely label of every named head, ``[B, len(heads)] int64``.

    Args:
        heads: names of sub-modules whose outputs are logits ``[B, C_l]``, or any increasing
            function of them.
    """

    of_tiles = False

    def __init__(self, heads: Sequence[str]) -> None:
        self.heads = list(heads)
        self.key = f"argmax of {', '.join(self.heads)}"

    def layers(self, backbone: Backbone) -> list[str]:
        """The heads.

        Raises:
            UserError: the backbone has no such sub-module.
        """
        modules = dict(backbone.named_modules())
        if missing := [head for head in self.heads if head not in modules]:
            raise UserError(f"{backbone.name} has no head '{missing[0]}'")
        return self.heads

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """``argmax_c`` of the output of each head."""
        return torch.stack([maps[head].argmax(dim=1) for head in self.heads], dim=1)
