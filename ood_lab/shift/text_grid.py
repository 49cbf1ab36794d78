"""Text features of labels x templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.shift.label_texts import fill

#: Maps N texts to features ``[N, l]``, as ``ClipModel.encode_text`` does.
EncodeText = Callable[[list[str]], Tensor]


class FeatureGrid:
    """Text features that are kept in memory.

    Args:
        table: ``[L, T, l]``, any float type; float16 halves the memory (20,000 x 80 x 512 takes
            1.6 GB) at no cost to LAID.
    """

    def __init__(self, table: Tensor) -> None:
        if table.ndim != 3:
            raise ValueError(f"table: expected [labels, templates, l], got {tuple(table.shape)}")
        self.table = table

    @property
    def shape(self) -> tuple[int, int, int]:
        """Labels, templates and feature width."""
        labels, templates, width = self.table.shape
        return labels, templates, width

    def features(self, labels: Tensor, templates: Tensor) -> Tensor:
        """Normalised features of the texts ``(labels[i], templates[i])``, ``[B, l] float32``."""
        return F.normalize(self.table[labels, templates].float(), dim=-1)


def encode_grid(
    labels: Sequence[str],
    templates: Sequence[str],
    encode: EncodeText,
    *,
    chunk: int = 1024,
    dtype: torch.dtype = torch.float16,
) -> FeatureGrid:
    """Encodes every label in every template once.

    Args:
        labels: L names.
        templates: T texts with ``{}`` for the name.
        encode: the text encoder.
        chunk: texts encoded at a time.
        dtype: of the kept features.
    """
    texts = [fill(template, label) for label in labels for template in templates]
    parts = [encode(texts[start : start + chunk]) for start in range(0, len(texts), chunk)]
    table = torch.cat([F.normalize(p.detach().float(), dim=-1).to(dtype).cpu() for p in parts])
    return FeatureGrid(table.view(len(labels), len(templates), -1))
