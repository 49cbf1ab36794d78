"""Image features for comparisons of sets of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from timm.data import create_transform, resolve_model_data_config
from torch import Tensor

from ood_lab.clip import ClipModel
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError
from ood_lab.lvlm.image_text.base import in_batches

_BATCH = 32


def image_features(clip: ClipModel, images: Sequence[Path]) -> NDArray[np.float32]:
    """Normalised image features of a CLIP, ``[N, D]``."""
    device = chosen_device(None)
    clip = clip.to(device)

    def encode(batch: list[Image.Image]) -> Tensor:
        pixels = torch.stack([clip.preprocess(image) for image in batch])
        return clip.encode_image(pixels.to(device))

    return in_batches(images, _BATCH, clip.embed_dim, clip.name, encode)


def timm_features(name: str, weights: str, images: Sequence[Path]) -> NDArray[np.float32]:
    """Pooled features of a network of timm, ``[N, D]``; the paper takes DINOv2.

    Args:
        name: such as ``vit_small_patch14_dinov2.lvd142m``.
        weights: file of its weights.
        images: N files.

    Raises:
        UserError: timm has no such network, or the weights do not fit.
    """
    import timm

    try:
        network = timm.create_model(name, num_classes=0, checkpoint_path=weights).eval()
    except Exception as error:  # timm's own errors are of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"task.encoder={name} cannot be loaded ({reason})") from error
    device = chosen_device(None)
    network = network.to(device)
    transform = create_transform(**resolve_model_data_config(network), is_training=False)

    def encode(batch: list[Image.Image]) -> Tensor:
        return network(torch.stack([transform(image) for image in batch]).to(device))

    width: int = network.num_features  # type: ignore[assignment]
    return in_batches(images, _BATCH, width, name, encode)
