"""What may be done to the sets of a DataModule, and how they are read.

Steps change ``splits`` in place and return what the user should know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from ood_lab.common.arguments import BatchSize, Workers
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.data.checks.check_report import shared_content
from ood_lab.data.checks.dataset_checks import Checking
from ood_lab.data.dataset import ImageDataset, ImageSets, Splits
from ood_lab.data.sources.image_files import FileDataset, decoding_of
from ood_lab.data.sources.level_tables import apply_levels, read_levels
from ood_lab.data.sources.reading_warnings import Tell
from ood_lab.data.sources.source_settings import Given, ReadOptions, source_of
from ood_lab.data.transforms.subsets import ALL, even_rows, few_shot, only_rows

#: Training images of each class.
Shots = Annotated[int, Ge(ALL)]
#: Name of the set of ``data.outliers``.
OUTLIERS = "outliers"


@dataclass(frozen=True)
class Loading:
    """How batches are made.

    Args:
        batch_size: images a training batch, on all devices together.
        eval_batch_size: images per batch in validation, test and extraction; None = ``batch_size``.
        num_workers: loader processes; 0, and one batch in order = load in the main process.
        max_batches: so many batches of every set at most, taken at equal steps through it; None =
            all images. Set by ``debug=true``.
    """

    batch_size: BatchSize = 64
    eval_batch_size: BatchSize | None = None
    num_workers: Workers = 0
    max_batches: int | None = None

    def on_each(self, devices: int) -> int:
        """Images of a training batch on each of so many devices.

        Raises:
            UserError: they do not divide ``batch_size``.
        """
        if self.batch_size % devices:
            raise UserError(
                f"data.batch_size={self.batch_size} is the total of {devices} devices, which do "
                f"not divide it: give a multiple of {devices}"
            )
        return self.batch_size // devices

    @property
    def evaluated(self) -> int:
        """Images per batch where nothing is trained."""
        return self.eval_batch_size or self.batch_size

    def cut(self, data: ImageDataset) -> ImageDataset:
        """What ``max_batches`` leave of a set."""
        if self.max_batches is None:
            return data
        size = self.batch_size if data.name == "train" else self.evaluated
        return only_rows(data, even_rows(len(data), self.max_batches * size))


def take_shots(splits: ImageSets, shots: int, seed: int | None) -> list[str]:
    """Chooses the images of ``train``, in place: all that is fitted on it then sees only these.

    Args:
        splits: all sets by name.
        shots: training images of each class, see :func:`few_shot`; -1 = all.
        seed: of that choice; None = the seed of the job.
    """
    train = splits["train"]
    splits["train"] = few_shot(train, shots, seed)
    if shots == ALL:
        return []
    of_class = shots if train.groups is None else counted(shots, "group")
    return [
        f"train: {len(splits['train']):,} of {len(train):,} images, {of_class} a class; "
        "detectors that are fitted on train see only these"
    ]


def add_outliers(splits: ImageSets, setting: Given, checking: Checking, tell: Tell) -> list[str]:
    """Adds the set :data:`OUTLIERS`, which training sees, and on which nothing is evaluated.

    Raises:
        UserError: there is such a set already, or the source cannot be read.
    """
    if OUTLIERS in splits:
        raise UserError(f"data.outliers is a set '{OUTLIERS}': give that of data.ood another")
    source, cache = source_of(setting, "data.outliers"), checking.cache_dir
    table, _, store = source.read([], ReadOptions(tell, cache, checking.on_broken == "skip"))
    splits[OUTLIERS] = FileDataset(
        OUTLIERS,
        table[["path", "label"]],
        [],
        checking.identify,
        cache_dir=cache,
        store=store,
        decoding=decoding_of(splits["train"]),
    )
    return [f"{len(table):,} images of data.outliers are trained with, and not evaluated"]


def check_outliers(splits: Splits) -> None:
    """Raises :class:`UserError` where outliers are among the images of another set."""
    compared = [data for name, data in splits.items() if name != OUTLIERS]
    if overlaps := shared_content(compared, splits[OUTLIERS]):
        raise UserError(
            "training would see, as outliers, images that are ID or evaluated: "
            f"{'; '.join(map(str, overlaps))}. Remove them from data.outliers"
        )


def read_division(file: StrPath, ood: Splits, cut: bool) -> list[str]:
    """Gives OOD sets the measured levels of a file; ``cut``: to the images that are left."""
    table = read_levels(file)
    if cut:  # made for all images of a set
        here = {(name, str(p)) for name, data in ood.items() for p in data.table["path"]}
        pairs = zip(table["dataset"], table["path"].astype(str), strict=True)
        table = table[[pair in here for pair in pairs]]
    apply_levels(ood, table, f"data.levels={file}")
    return [f"levels of shift: {file}"]
