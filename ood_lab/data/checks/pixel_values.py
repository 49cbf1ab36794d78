"""Sets whose pixels use little of the range from black to white."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from ood_lab.data.checks.check_report import Finding
from ood_lab.data.dataset import Splits
from ood_lab.data.sources.image_files import FileDataset, pixel_values
from ood_lab.data.sources.pixel_decoding import PERCENTILES, TOP, WHOLE

#: Images of a set that are looked at.
SAMPLE = 16
#: Share of the range from black to white below which 99.9% of the pixels are nearly black.
DARK = 16 / 255


def nearly_black(splits: Splits, readable: pd.DataFrame) -> Iterable[Finding]:
    """Names the sets that are nearly black, and those whose deep pixels are clipped.

    Args:
        splits: the sets; those without files are skipped.
        readable: ``split, row`` of the images that can be read.
    """
    for name, part in readable.groupby("split", sort=False):
        data = splits[str(name)]
        assert isinstance(data, FileDataset)
        chosen = np.unique(np.linspace(0, len(part) - 1, SAMPLE).astype(int))
        paths = part["path"].iloc[chosen].tolist()
        values = pixel_values(paths, data.store, data.decoding, data.cache_dir)
        if len(values):
            yield from _dark(data, values)
            yield from _clipped(data, values[values["deep"].astype(bool)])


def _dark(data: FileDataset, values: pd.DataFrame) -> Iterable[Finding]:
    low, high = data.decoding.pixel_range or WHOLE
    deep = values["deep"].astype(bool)
    brightest = values["top"].where(~deep, (values["top"] - low) / (high - low) * 255).max() / 255
    if brightest < DARK:
        yield Finding(
            f"images of {data.name} are nearly black: {TOP}% of the pixels are below "
            f"{max(0, brightest):.1%} of white, as where 12 bits are saved in 16, or masks in the "
            "place of images; data.pixel_range=[low,high] sets the range of images of more than "
            "8 bits",
            (data.name,),
        )


def _clipped(data: FileDataset, deep: pd.DataFrame) -> Iterable[Finding]:
    if data.decoding.pixel_range is None or deep.empty:
        return
    low, high = data.decoding.pixel_range
    slack = (high - low) / 100  # the percentiles of a single image differ from those of the sample
    outside = (deep["low"] < low - slack) | (deep["high"] > high + slack)
    if outside.any():
        yield Finding(
            f"pixels of {data.name} are outside of {low:g} to {high:g} and become black or white, "
            f"more than {PERCENTILES[0]}% of them in {outside.mean():.0%} of the images: "
            "data.pixel_range=[low,high] sets another range",
            (data.name,),
        )
