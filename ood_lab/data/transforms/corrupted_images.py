"""Images of other sets under the common corruptions, made when they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from PIL import Image

from ood_lab.common.random_streams import stream
from ood_lab.data.dataset import UNKNOWN, ImageDataset
from ood_lab.data.sources.pixel_decoding import CHANNELS
from ood_lab.data.transforms.corruptions import CORRUPTIONS, VERSION, corrupt
from ood_lab.schema.image_groups import GROUP, MADE_OF

#: What a row of a plan says: which image, and what is done to it.
PLAN = ("source", "row", "corruption", "severity")


class CorruptedImages(ImageDataset):
    """Images of other sets, each under one corruption; no file is written.

    The draws of an image follow from ``seed``, its row and the corruption, and not from the process
    that loads it, so that severities differ only in strength. The identity covers that of the
    sources, the plan, the seed and the version of the corruptions.

    Args:
        name: of the set.
        sources: sets of images; those of classes say in ``category_name`` which an image shows.
        plan: columns :data:`PLAN`, of which severity 0 leaves an image unchanged, and levels of
            shift, which become columns of the table.
        seed: of the draws.
        size: images whose shorter side has more pixels are reduced to so many before they are
            corrupted.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[ImageDataset],
        plan: pd.DataFrame,
        seed: int = 0,
        size: int = 256,
    ) -> None:
        self.sources = list(sources)
        self.seed, self.size = seed, size
        self._plan = list(plan[list(PLAN)].itertuples(index=False, name=None))
        recipe = f"corruptions {VERSION}, seed {seed}, {size} px\0{plan.to_csv(index=False)}"
        content = "\0".join([*(data.identity for data in sources), recipe])
        begin = np.cumsum([0, *map(len, sources)])[plan["source"]]
        shown = pd.concat(map(_described, sources)).iloc[begin + plan["row"].to_numpy()]
        added = plan.drop(columns=["source", "row"])
        table = pd.concat([part.reset_index(drop=True) for part in (shown, added)], axis=1)
        table[MADE_OF] = (table[MADE_OF] if MADE_OF in table else table["path"]).astype(str)
        marks = [f"#{kind}-{degree}" if degree else "" for _, _, kind, degree in self._plan]
        table["path"] = table["path"].astype(str) + marks
        table["label"] = UNKNOWN
        names = {GROUP: sources[0].names[GROUP]} if GROUP in table else {}
        super().__init__(name, table, [], hashlib.sha256(content.encode()).hexdigest(), names)

    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` as an RGB PIL image."""
        source, row, name, severity = self._plan[index]
        image = self.sources[source].load_image(row)
        if severity == 0:
            return image
        number = list(CORRUPTIONS).index(name)

        def corrupted(part: Image.Image) -> Image.Image:
            rng = stream(self.seed, "corrupted pixels", source, row, number)
            return corrupt(_reduced(part, self.size), name, severity, rng)

        image_out = corrupted(image)
        if (channels := getattr(image, CHANNELS, None)) is not None:
            parts = [np.asarray(corrupted(part)) for part in _threes(channels)]
            setattr(image_out, CHANNELS, np.concatenate(parts, axis=2)[..., : channels.shape[2]])
        return image_out


def _described(data: ImageDataset) -> pd.DataFrame:
    """``path`` and, where it is known, ``category_name``: the class that an image shows."""
    grouped = [GROUP, MADE_OF] if data.groups is not None else []
    table = data.table[["path", *grouped]].copy()
    if data.classes:
        names = dict(enumerate(data.classes))
        table["category_name"] = data.table["label"].map(names).fillna("")
    elif "category_name" in data.table:
        table["category_name"] = data.table["category_name"]
    return table


def _threes(channels: np.ndarray) -> Iterator[Image.Image]:
    """``[H, W, n]`` as RGB pictures; the last channel fills up the last one."""
    if channels.dtype != np.uint8:
        channels = (channels * 255).round().astype(np.uint8)
    full = np.pad(channels, ((0, 0), (0, 0), (0, -channels.shape[2] % 3)), mode="edge")
    for first in range(0, full.shape[2], 3):
        yield Image.fromarray(np.ascontiguousarray(full[..., first : first + 3]))


def _reduced(image: Image.Image, size: int) -> Image.Image:
    """The image, its shorter side ``size`` pixels where it has more."""
    share = size / min(image.size)
    if share >= 1:
        return image
    width, height = (max(size, round(side * share)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)
