"""What an image-text model is: images and labels in, scores out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.special import expit, logsumexp
from timm.data import create_transform, resolve_model_data_config
from torch import Tensor

from ood_lab.clip import ClipModel
from ood_lab.common.arguments import Settings
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import read_table, write_table
from ood_lab.common.progress import Pace
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.lvlm.annotations import Annotations
from ood_lab.schema.arrays import Bools, Floats, Reals

Scores = NDArray[np.float32]
#: Features of images or texts, a row each.
ImageFeatures = NDArray[np.float32]
#: Images that a model takes at a time.
ImageBatch = list[Image.Image]
#: Probabilities are kept this far from 0 and 1, so that their log-odds are finite.
_EDGE = 1e-6


class ImageTextModel(Protocol):
    """A model that says how well a label fits an image.

    Attributes:
        name: for tables and columns.
    """

    name: str

    @property
    def made_with(self) -> Settings:
        """Everything that can change a score: weights, template, scale."""

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """``s(x, y)``, ``[N, n]``: logits, scale or temperature included.

        Raises:
            UserError: an image cannot be read.
        """


def texts_of(labels: Sequence[str], template: str) -> list[str]:
    """Every label in the template, which holds ``{}``.

    Raises:
        UserError: it does not.
    """
    if "{}" not in template:
        raise UserError(f"image_text template '{template}' has no {{}} where the label goes")
    return [template.format(label) for label in labels]


def log_odds(chance: Reals) -> Reals:
    """``ln(p / (1 - p))`` of probabilities, which are kept within 1e-6 of 0 and 1."""
    inner = np.clip(chance, _EDGE, 1 - _EDGE)
    return np.log(inner / (1 - inner))


def in_batches(
    images: Sequence[Path],
    size: int,
    columns: int,
    name: str,
    score: Callable[[ImageBatch], Tensor],
) -> Scores:
    """Scores of all images, ``[N, columns]``, with a line about the progress now and then.

    Args:
        images: N files.
        size: images of a batch.
        columns: number of labels.
        name: of the model, for the line.
        score: maps a list of images to ``[B, columns]``.
    """
    results = np.empty((len(images), columns), np.float32)
    for start, batch in loaded_batches(images, size, name):
        with torch.inference_mode():
            scores = score(batch)
            results[start : start + len(batch)] = scores.float().cpu().numpy()
    return results


def loaded_batches(
    images: Sequence[Path], size: int, name: str
) -> Iterator[tuple[int, ImageBatch]]:
    """Batches of images, each with the number of its first one, and lines about the progress."""
    pace = Pace(len(images), interval=10.0)
    for start in range(0, len(images), size):
        batch = [load_rgb(path) for path in images[start : start + size]]
        yield start, batch
        done = start + len(batch)
        if pace.due:
            pace.line(f"{name}: scored {done} of {len(images)} images, {pace.left(done)}")


def purified(scores: Reals, shown: Bools, absent: Bools) -> Floats:
    """``p_c = e^{s_c} / (e^{s_c} + sum_{y in A} e^{s_y})``: the softmax skips other shown labels.

    Args:
        scores: logits of N images and n labels, ``[N, n]``, temperature included.
        shown: labels c that have a probability, ``[N, n]``.
        absent: labels A, ``[N, n]``.

    Returns:
        ``[N, n]``; NaN where a label is not shown, 1 where none is absent.
    """
    values = np.asarray(scores, np.float64)
    rest = logsumexp(np.where(absent, values, -np.inf), axis=1, keepdims=True)
    return np.where(shown, expit(values - rest), np.nan)


def cached_scores(model: ImageTextModel, annotations: Annotations, folder: Path) -> Scores:
    """Scores of every image and category, ``[N, n]``, from ``folder`` where they are known.

    Args:
        model: computes missing scores.
        annotations: images and label space.
        folder: of all such files; one is named by a hash of the model, the labels and the
            content of the images, so that a copy of them finds it.
    """
    images = [*annotations.paths.values()]
    facts = json.dumps([dict(model.made_with), list(annotations.categories)])
    scores = partial(model.scores, images, annotations.categories)
    return computed_once(facts, images, folder, scores)


def computed_once(
    known: str, images: Sequence[Path], folder: Path, compute: Callable[[], Scores]
) -> Scores:
    """Numbers of images, ``[N, D]``, from ``folder`` where they are known.

    Args:
        known: whatever a number depends on but for the images, as a text.
        images: N files.
        folder: of all such files; one is named by a hash of the text and of the content of the
            images in order.
        compute: the numbers.
    """
    digest, paths = hashlib.sha256(known.encode()), [str(image.absolute()) for image in images]
    for path, content in zip(paths, content_hashes(paths, folder), strict=True):
        digest.update(f"{content or path}\n".encode("utf-8", "surrogateescape"))
    file = folder / f"{digest.hexdigest()[:32]}.parquet"
    if file.exists():
        return read_table(file).to_numpy(np.float32)
    results = compute()
    columns = [str(number) for number in range(results.shape[1])]
    write_table(pd.DataFrame(results, columns=columns), file)
    return results


_BATCH = 32


def encoded_images(clip: ClipModel, images: Sequence[Image.Image]) -> Tensor:
    """Normalised features of RGB images, ``[B, D]``, on the device of the CLIP."""
    pixels = torch.stack([clip.preprocess(image) for image in images])
    return clip.encode_image(pixels.to(clip.device))


def image_features(clip: ClipModel, images: Sequence[Path]) -> ImageFeatures:
    """Normalised image features of a CLIP, ``[N, D]``."""
    encode = partial(encoded_images, clip.to(chosen_device(None)))
    return in_batches(images, _BATCH, clip.embed_dim, clip.name, encode)


def timm_features(name: str, weights: str, images: Sequence[Path]) -> ImageFeatures:
    """Pooled features of a network of timm, ``[N, D]``; the paper takes DINOv2.

    Args:
        name: such as ``vit_small_patch14_dinov2.lvd142m``.
        weights: file of its weights.
        images: N files.

    Raises:
        UserError: timm has no such network, or the weights do not fit.
    """
    import timm

    with reported_as(f"task.encoder={name} cannot be loaded ({{reason}})"):
        network = timm.create_model(name, num_classes=0, checkpoint_path=weights).eval()
    device = chosen_device(None)
    network = network.to(device)
    transform = create_transform(**resolve_model_data_config(network), is_training=False)

    def encode(batch: ImageBatch) -> Tensor:
        return network(torch.stack([transform(image) for image in batch]).to(device))

    width: int = network.num_features  # type: ignore[assignment]
    return in_batches(images, _BATCH, width, name, encode)
