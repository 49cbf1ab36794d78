"""Maps of the detectors of places: over the images of a page, and in files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import CenterCrop, Compose, Resize

from ood_lab.common.files import replaced
from ood_lab.common.random_streams import Resampling
from ood_lab.data.dataset import ID_SPLITS, Splits
from ood_lab.detectors.base import Detector, Detectors
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.metrics.pixel_scores import PIXELS, pixel_counts, pixel_rows, thresholds_of
from ood_lab.models.image_tiles import Tiles
from ood_lab.report.rendering.thumbnails import LoadImage, legend, map_of, with_map
from ood_lab.schema.results import ID_TEST

#: In the run folder: the maps, and the folder of the overlays.
MAPS, OVERLAYS = "maps.npz", "maps"


@dataclass(frozen=True)
class PlaceMaps:
    """The maps of one detector on some sets.

    Attributes:
        name: of the detector.
        detector: fitted.
        banks: of the sets.
        low: the threshold; only places above it are coloured.
        high: the score that is red, the largest of the page.
        transform: of the images.
    """

    name: str
    detector: Detector
    banks: Banks
    low: float
    high: float
    transform: Any

    @property
    def legend(self) -> str:
        """What the colours mean."""
        return legend(self.low, self.high)

    def values(self, bank: FeatureBank) -> Tensor:
        """The maps of images, ``[N, h, w] float32``."""
        maps = self.detector.maps(bank.of_tiles)
        return self.transform.joined(maps) if isinstance(self.transform, Tiles) else maps

    def over(self, image: Image.Image, dataset: str, row: int) -> Image.Image:
        """An image with its map; ``row`` is that of the bank."""
        values = self.values(self.banks[dataset].rows(torch.tensor([row])))
        box = seen_box(self.transform, image.size)
        return with_map(image, values[0].numpy(), self.low, self.high, box)

    def write(self, folder: Path, dataset: str, load_image: LoadImage) -> None:
        """Writes the maps of a set as float16, and all its images with theirs as PNG."""
        values = self.values(self.banks[dataset])
        with replaced(folder / MAPS) as file, file.open("wb") as stream:
            arrays: Any = {f"{self.name}/{dataset}": values.half().numpy()}
            np.savez_compressed(stream, **arrays)
        (folder / OVERLAYS).mkdir(exist_ok=True)
        for row in range(len(values)):
            image = _opened_image(load_image(dataset, row))
            if image is not None:
                overlay = self.over(image, dataset, row)
                overlay.save(folder / OVERLAYS / f"{self.name}-{dataset}-{row:05d}.png")


def place_maps(
    detectors: Detectors,
    banks: Banks,
    thresholds: Mapping[str, float],
    largest: Mapping[str, float],
    transform: Any,
) -> list[PlaceMaps]:
    """Of the detectors that have maps; the others have none.

    Args:
        detectors: fitted.
        banks: of the sets whose images are shown, by name.
        thresholds: of scores, by detector.
        largest: the largest score, by detector.
        transform: of the images.
    """
    return [
        PlaceMaps(name, detector, banks, low, max(largest[name], 1.2 * low), transform)
        for name, detector in detectors.items()
        if detector.has_maps and banks and np.isfinite(low := thresholds[name])
    ]


def pixel_results(
    maps: Sequence[PlaceMaps], splits: Splits, model: str, resampling: Resampling
) -> pd.DataFrame | None:
    """Pixel AUROC and AUPRO of the OOD sets whose table has masks; None without any.

    Maps are resized to their masks (bilinear). Images of these sets without a mask are skipped;
    those of ID test have no anomalous pixel. Only what the transform keeps of an image counts.
    """
    rows: list[dict[str, Any]] = []
    masked = [name for name in splits if name not in ID_SPLITS and "mask" in splits[name].table]
    for of, name in product(maps, [name for name in masked if maps and name in maps[0].banks]):
        both = {split: of.values(of.banks[split]).numpy() for split in (ID_TEST, name)}
        thresholds = thresholds_of(np.concatenate([values.ravel() for values in both.values()]))
        counts: dict[str, list[Any]] = {ID_TEST: [], name: []}
        for split, values in both.items():
            for row, scores in zip(of.banks[split].index.tolist(), values, strict=True):
                mask = splits[split].load_mask(row)
                if mask is None and split == ID_TEST:
                    mask = np.zeros(splits[split].load_image(row).size[::-1])
                if mask is not None:
                    extent = mask.shape[1], mask.shape[0]
                    left, top, right, bottom = seen_box(of.transform, extent)
                    size = right - left, bottom - top
                    resized = Image.fromarray(scores).resize(size, Image.Resampling.BILINEAR)
                    marked = mask[top:bottom, left:right] > 0.5
                    counts[split].append(pixel_counts(np.asarray(resized), marked, thresholds))
        if counts[name]:
            of_set = pixel_rows(counts[ID_TEST], counts[name], resampling)
            rows += [{"detector": of.name, "dataset": name} | row for row in of_set]
    return PIXELS.table(rows, model=model, seed=resampling.seed) if rows else None


def with_maps(load_image: LoadImage, maps: Sequence[PlaceMaps]) -> LoadImage:
    """A loader that also knows images with maps, by the names that ``map_of`` gives them."""
    by_name = {map_of(m.name, dataset): (m, dataset) for m in maps for dataset in m.banks}

    def load(dataset: str, row: int) -> Image.Image | bytes | None:
        if dataset not in by_name:
            return load_image(dataset, row)
        of, name = by_name[dataset]
        image = _opened_image(load_image(name, row))
        return None if image is None else of.over(image, name, row)

    return load


def _opened_image(image: Image.Image | bytes | None) -> Image.Image | None:
    return Image.open(io.BytesIO(image)) if isinstance(image, bytes) else image


def seen_box(transform: Any, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, upper, right and lower edge of the part of an image that a transform keeps."""
    steps = transform.transforms if isinstance(transform, Compose) else []
    width, height = size
    w, h = float(width), float(height)
    scale_x = scale_y = 1.0
    left = top = 0.0
    for step in steps:
        if isinstance(step, Resize):
            edges = [step.size] if isinstance(step.size, int) else list(step.size)
            if len(edges) == 1:
                scale_x = scale_y = edges[0] / min(width, height)
            else:
                scale_x, scale_y = edges[1] / width, edges[0] / height
            w, h = width * scale_x, height * scale_y
        elif isinstance(step, CenterCrop):
            left, top = max(0.0, (w - step.size[1]) / 2), max(0.0, (h - step.size[0]) / 2)
    ends = left / scale_x, top / scale_y, (w - left) / scale_x, (h - top) / scale_y
    box = [round(end) for end in ends]
    return box[0], box[1], max(box[2], box[0] + 1), max(box[3], box[1] + 1)
