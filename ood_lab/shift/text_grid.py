"""Text features of labels x templates, kept or encoded when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.neighbours import Progress
from ood_lab.shift.label_texts import fill

#: Maps N texts to features ``[N, l]``, as ``ClipModel.encode_text`` does.
EncodeText = Callable[[list[str]], Tensor]


class TextGrid(Protocol):
    """Features of the texts of L labels in T templates."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Labels, templates and feature width ``(L, T, l)``."""

    def features(self, labels: Tensor, templates: Tensor) -> Tensor:
        """Normalised features of the texts ``(labels[i], templates[i])``, ``[B, l] float32``."""


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


class EncodedGrid:
    """Text features that are encoded when asked for: no memory, more time.

    Args:
        labels: L names.
        templates: T texts with ``{}`` for the name.
        encode: the text encoder.
        chunk: texts encoded at a time.
    """

    def __init__(
        self,
        labels: Sequence[str],
        templates: Sequence[str],
        encode: EncodeText,
        chunk: int = 1024,
    ) -> None:
        self.labels = list(labels)
        self.templates = list(templates)
        self.encode = encode
        self.chunk = chunk
        self.width = encode([fill(self.templates[0], self.labels[0])]).shape[1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Labels, templates and feature width."""
        return len(self.labels), len(self.templates), self.width

    def features(self, labels: Tensor, templates: Tensor) -> Tensor:
        """Normalised features of the texts ``(labels[i], templates[i])``, ``[B, l] float32``."""
        texts = [
            fill(self.templates[template], self.labels[label])
            for label, template in zip(labels.tolist(), templates.tolist(), strict=True)
        ]
        starts = range(0, len(texts), self.chunk)
        parts = [self.encode(texts[start : start + self.chunk]).detach() for start in starts]
        return F.normalize(torch.cat(parts).float(), dim=-1)


def encode_grid(
    labels: Sequence[str],
    templates: Sequence[str],
    encode: EncodeText,
    *,
    chunk: int = 1024,
    dtype: torch.dtype = torch.float16,
    progress: Progress | None = None,
) -> FeatureGrid:
    """Encodes every label in every template once.

    Args:
        labels: L names.
        templates: T texts with ``{}`` for the name.
        encode: the text encoder.
        chunk: texts encoded at a time.
        dtype: of the kept features.
        progress: receives the share done after every chunk.
    """
    texts = EncodedGrid(labels, templates, encode, chunk)
    n_labels, n_templates, width = texts.shape
    table = torch.empty(n_labels * n_templates, width, dtype=dtype)
    for rows in torch.arange(len(table)).split(chunk):
        table[rows] = texts.features(rows // n_templates, rows % n_templates).to(dtype).cpu()
        if progress is not None:
            progress((int(rows[-1]) + 1) / len(table))
    return FeatureGrid(table.view(n_labels, n_templates, width))
