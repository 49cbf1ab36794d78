"""CUB-200-2011, which no package that we need reads."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from torchvision.datasets.folder import default_loader

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import missing_path


class CUB:
    """The training or test images of Caltech-UCSD Birds-200-2011, by its own lists.

    Args:
        root: folder that holds ``CUB_200_2011``, as the archive unpacks.
        train: training images, otherwise those for testing.

    Raises:
        UserError: a list is not there.
    """

    def __init__(self, root: StrPath, train: bool = True) -> None:
        place = Path(root).expanduser() / "CUB_200_2011"

        def listed(name: str) -> pd.Series:
            if not (place / name).is_file():
                raise UserError(f"{missing_path(place / name)}; unpack CUB_200_2011.tgz there")
            return pd.read_csv(place / name, sep=" ", header=None, index_col=0).iloc[:, 0]

        chosen = listed("train_test_split.txt") == int(train)
        self.classes = listed("classes.txt").sort_index().tolist()
        labels = listed("image_class_labels.txt")[chosen] - 1
        files = [str(place / "images" / name) for name in listed("images.txt")[chosen]]
        self.samples = list(zip(files, labels.tolist(), strict=True))

    def __len__(self) -> int:
        """The number of images."""
        return len(self.samples)

    def __getitem__(self, row: int) -> tuple[object, int]:
        """Image and label of a row."""
        file, label = self.samples[row]
        return default_loader(file), label
