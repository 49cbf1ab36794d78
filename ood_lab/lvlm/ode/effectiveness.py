"""Are the made images like natural ones? Their features beside those of annotated images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ood_lab.clip import ClipModel
from ood_lab.lvlm.image_text.base import chosen_device, in_batches

#: Name of the natural images among the sets.
NATURAL = "natural"
_BATCH = 32


def image_features(clip: ClipModel, images: Sequence[Path]) -> NDArray[np.float64]:
    """Normalised image features of a CLIP, ``[N, D]``."""
    device = chosen_device(None)
    model = clip.to(device)

    def encode(batch: list[Image.Image]) -> Tensor:
        pixels = torch.stack([model.preprocess(image) for image in batch])
        return model.encode_image(pixels.to(device))

    found = in_batches(images, _BATCH, clip.embed_dim, clip.name, encode).astype(np.float64)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def effectiveness(features: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    """How near every set lies to the natural images.

    ``distance``: mean over the images of ``1 - max cos`` to a natural one; for natural images to
    another one. ``ratio``: that over the natural images' own, 1 = as near as they are to each other.

    Args:
        features: normalised, ``[n, D]`` by name of the set, :data:`NATURAL` among them.

    Returns:
        ``set, n, distance, ratio``.
    """
    natural = features[NATURAL]
    rows = []
    for name, values in features.items():
        cosines = values @ natural.T
        if name == NATURAL:
            np.fill_diagonal(cosines, -np.inf)
        nearest = 1 - cosines.max(axis=1)
        rows.append({"set": name, "n": len(values), "distance": float(nearest.mean())})
    table = pd.DataFrame(rows)
    own = table.loc[table["set"] == NATURAL, "distance"].iloc[0]
    return table.assign(ratio=table["distance"] / own if own else np.nan)
