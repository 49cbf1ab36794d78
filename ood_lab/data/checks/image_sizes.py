"""The size of the ID images, which the input size of a network should suit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ood_lab.data.checks.check_report import SetSummary
from ood_lab.data.dataset import ID_SPLITS, Splits

#: Images that are opened where the check of the data has opened none.
SAMPLE = 32


@dataclass(frozen=True)
class ImageSize:
    """Pixels of the ID images.

    Attributes:
        width: of the image of median area.
        height: of that image.
        shared: all ID images have this very size, as far as they were looked at.
    """

    width: int
    height: int
    shared: bool


def id_size(splits: Splits, checked: Sequence[SetSummary]) -> ImageSize:
    """The size of the ID images: as the check found it, else of a sample of ``train``.

    Args:
        splits: the sets.
        checked: what the check says of them.
    """
    id_sets = [s for s in checked if s.name in ID_SPLITS and s.median_size is not None]
    if id_sets:
        sizes = {size for s in id_sets for size in (s.median_size, s.common_size)}
        median = id_sets[0].median_size
        assert median is not None
        width, height = median
        return ImageSize(width, height, shared=len(sizes) == 1)
    train = splits["train"]
    rows = np.unique(np.linspace(0, len(train) - 1, SAMPLE).astype(int))
    looked_at = sorted((train.load_image(int(row)).size for row in rows), key=np.prod)
    width, height = looked_at[len(looked_at) // 2]
    return ImageSize(width, height, shared=len(set(looked_at)) == 1)
