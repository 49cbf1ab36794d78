"""Text features of labels x templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import distinct

#: What a template has in place of the label.
PLACE = "{}"
#: Texts that are encoded at a time.
_CHUNK = 1024


def imagenet21k_labels() -> list[str]:
    """First lemmas of ImageNet-21K's 21,841 synsets, each once: 20,099 names (timm's list)."""
    # Reads a list of 21,841 descriptions: only who asks for it pays.
    from timm.data import ImageNetInfo

    descriptions = ImageNetInfo("imagenet-22k").label_descriptions()
    return distinct(text.split(",")[0].strip() for text in descriptions)


def imagenet_templates() -> list[str]:
    """The 80 templates of CLIP's zero-shot ImageNet classifier, with ``{}`` for the label."""
    # open_clip imports torchvision and takes seconds.
    from open_clip import OPENAI_IMAGENET_TEMPLATES

    return [template(PLACE) for template in OPENAI_IMAGENET_TEMPLATES]


def read_texts(path: StrPath) -> list[str]:
    """The lines of a text file, without empty ones and ``#`` comments, each once.

    Raises:
        UserError: no such file, not UTF-8, or nothing in it.
    """
    problem = f"text list '{path}' cannot be read: {{reason}}"
    with reported_as(problem, (OSError, UnicodeDecodeError)):
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    texts = distinct(line for line in lines if line and not line.startswith("#"))
    if not texts:
        raise UserError(f"text list '{path}' is empty: write one text per line")
    return texts


#: Maps N texts to features ``[N, l]``, as ``ClipModel.encode_text`` does.
EncodeText = Callable[[list[str]], Tensor]


@dataclass(frozen=True)
class FeatureGrid:
    """Text features that are kept in memory.

    Args:
        table: ``[L, T, l]``, any float type; float16 halves the memory (20,000 x 80 x 512 takes
            1.6 GB) at no cost to LAID.
    """

    table: Tensor

    def features(self, labels: Tensor, templates: Tensor | slice) -> Tensor:
        """Normalised features of the texts ``(labels[i], templates[i])``, ``[B, l] float32``.

        With a slice of templates, of these for each label, ``[B, T, l]``.
        """
        return F.normalize(self.table[labels, templates].float(), dim=-1)


def encode_grid(
    labels: Sequence[str],
    templates: Sequence[str],
    encode: EncodeText,
) -> FeatureGrid:
    """Encodes every label in every template once, and keeps the features as float16.

    Args:
        labels: L names.
        templates: T texts with ``{}`` for the name.
        encode: the text encoder.
    """
    texts = [template.replace(PLACE, label) for label in labels for template in templates]
    parts = [encode(texts[start : start + _CHUNK]) for start in range(0, len(texts), _CHUNK)]
    table = torch.cat([F.normalize(p.detach().float(), dim=-1).half().cpu() for p in parts])
    return FeatureGrid(table.view(len(labels), len(templates), -1))
