"""Statistics of the pixels that a network gets, gathered in its pass over the images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ood_lab.common.english import listed
from ood_lab.common.random_streams import Resampling
from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.common.tensor_file import Tensors
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.metrics import causes_of
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import MADE_OF
from ood_lab.schema.image_statistics import PIXELS, words_of
from ood_lab.shift import STATISTICS_VERSION, image_statistics

#: Of images of another kind than 0 to 1 nobody knows what was subtracted.
_AS_THEY_ARE = {"mean": 0.0, "std": 1.0}
#: How far pixels are outside [0, 1] at most, for half precision and interpolation.
_ROUNDING = 0.02


class StatisticsColumn(BankColumn):
    """:func:`~ood_lab.shift.image_statistics` of every image, before it is normalised."""

    key = f"image_statistics_{STATISTICS_VERSION}"
    of_tiles = False

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """``[B, 11] float32``, see :data:`~ood_lab.schema.image_statistics.PIXELS`."""
        with torch.no_grad(), full_precision(image):
            return image_statistics(_pixels(backbone, image))

    @staticmethod
    def reads(backbone: Backbone, image: Tensor) -> bool:
        """Whether these are images, grey or RGB, of which is known what was subtracted.

        Their pixels are in [0, 1] then.
        """
        if image.shape[1] not in (1, 3):
            return False
        least, most = _pixels(backbone, image).aminmax()
        return float(least) >= -_ROUNDING and float(most) <= 1 + _ROUNDING


def _pixels(backbone: Backbone, image: Tensor) -> Tensor:
    """The images before they were normalised."""
    mean, std = (
        torch.as_tensor(backbone.data_config.get(key, default), dtype=torch.float32)
        .to(image.device, non_blocking=True)
        .reshape(-1, 1, 1)
        for key, default in _AS_THEY_ARE.items()
    )
    return image.detach().float() * std + mean


def statistics_of(bank: FeatureBank) -> np.ndarray:
    """Those of the images of a bank, ``[n, 11]``."""
    return bank.columns[StatisticsColumn.key].double().cpu().numpy()


def statistics_of_sets(banks: Banks) -> pd.DataFrame:
    """Columns ``dataset, index`` and the statistics of the pixels, a row per image."""
    parts = [
        pd.DataFrame(statistics_of(bank), columns=list(PIXELS)).assign(
            dataset=name, index=bank.index.numpy()
        )
        for name, bank in banks.items()
    ]
    return pd.concat(parts, ignore_index=True)


def statistics_table(data: OODDataModule, banks: Banks) -> pd.DataFrame:
    """Statistics of the pixels and the files of all images of these sets.

    Returns:
        One row per image: ``dataset, index, path``, ``made_of`` where it is known, and a column
        for each statistic; NaN where that of a file is not known.
    """
    files = pd.DataFrame() if data.report is None else data.report.files
    about = [data.splits[name].table.filter(items=["path", MADE_OF]) for name in banks]
    table = pd.concat([pd.concat(about, ignore_index=True), statistics_of_sets(banks)], axis=1)
    if len(files):
        table = table.merge(files, on="path", how="left", validate="many_to_one")
    return table


@dataclass(frozen=True, eq=False)
class IDRange:
    """Range of each statistic over the ID images.

    Attributes:
        least: the smallest of each, see :func:`~ood_lab.shift.image_statistics`, ``[11]``.
        most: the largest of each, ``[11]``.
    """

    least: Floats
    most: Floats

    @classmethod
    def of(cls, bank: FeatureBank) -> IDRange:
        """That of the images of a bank."""
        values = statistics_of(bank)
        return cls(values.min(axis=0), values.max(axis=0))

    def beyond(self, bank: FeatureBank) -> list[str]:
        """What each image is more than all ID images ("darker and noisier"); "" = in their range.

        One image that is like n ID images is beyond a statistic with probability 2 / (n + 1).
        """
        x = statistics_of(bank)
        words = [words_of(name) for name in PIXELS]
        return [
            listed([words[place][side] for place, side in np.argwhere(row)]) if row.any() else ""
            for row in np.stack([x < self.least, x > self.most], axis=2)
        ]


def group_causes(of_id: FeatureBank, images: FeatureBank, *, seed: int) -> pd.DataFrame:
    """Statistics that tell new ``images`` from ID, see :func:`ood_lab.metrics.causes_of`."""
    table = statistics_of_sets({"test": of_id, "images": images})
    if of_id.groups is not None:
        names = [f"group {code}" for code in of_id.groups.tolist()]
        table[MADE_OF] = [*names, *(f"image {row}" for row in range(len(images)))]
    return causes_of(table, list(PIXELS), Resampling(seed=seed))
