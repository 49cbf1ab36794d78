"""Sets whose pixels use little of the range from black to white."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.data.checks.check_report import Finding
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import FileDataset, deep_images

#: Images of a set that are looked at.
SAMPLE = 16
#: Grey level of 255 below which 99.9% of the pixels are nearly black, and that share.
DARK, DARK_SHARE = 16, 99.9
#: Share of pixels beyond the range from which it is said that they are clipped.
CLIPPED = 0.01


def nearly_black(splits: Mapping[str, ImageDataset], readable: pd.DataFrame) -> Iterable[Finding]:
    """Names the sets that are nearly black, and those whose deep pixels are clipped.

    Args:
        splits: the sets; those without files are left out.
        readable: ``split, row`` of the images that can be read.
    """
    for name, part in readable.groupby("split", sort=False):
        data = splits[str(name)]
        assert isinstance(data, FileDataset)
        chosen = np.unique(np.linspace(0, len(part) - 1, SAMPLE).astype(int))
        rows = part["row"].iloc[chosen].astype(int).tolist()
        yield from _dark(data, rows)
        yield from _clipped(data, rows)


def _dark(data: FileDataset, rows: list[int]) -> Iterable[Finding]:
    levels = []
    for row in rows:
        try:
            pixels = np.asarray(data.load_image(row))
        except UserError:  # of a large set, files are only opened
            continue
        level = float(np.percentile(pixels, DARK_SHARE))
        if level >= DARK:
            return
        levels.append(level)
    if levels:
        yield Finding(
            f"images of {data.name} are nearly black: {DARK_SHARE}% of the pixels are below "
            f"{max(levels):.0f} of 255, as where 12 bits are saved in 16, or masks in the place of "
            "images; data.pixel_range=[low,high] sets the range of images of more than 8 bits",
            (data.name,),
        )


def _clipped(data: FileDataset, rows: list[int]) -> Iterable[Finding]:
    if data.decoding.pixel_range is None:
        return
    low, high = data.decoding.pixel_range
    deep = deep_images([data.paths[row] for row in rows], data.store, data.decoding)
    outside = [float(np.mean((x < low) | (x > high))) for x in map(np.asarray, deep)]
    if outside and np.mean(outside) > CLIPPED:
        yield Finding(
            f"{np.mean(outside):.0%} of the pixels of {data.name} are outside of {low:g} to "
            f"{high:g} and become black or white: data.pixel_range=[low,high] sets another range",
            (data.name,),
        )
