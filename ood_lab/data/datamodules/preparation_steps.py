"""What may be done to the sets of a DataModule, one small class each, and how they are read.

The fields are the keys of ``data`` in the configuration, so that a step and its settings are
together. Steps change ``splits`` in place and return what the user should know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge

from ood_lab.common.arguments import BatchSize, Seed, Workers
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.data.checks.content_overlap import shared_content
from ood_lab.data.checks.dataset_checks import Mode
from ood_lab.data.dataset import ImageDataset, Splits
from ood_lab.data.sources.image_files import FileDataset, Identify, decoding_of
from ood_lab.data.sources.level_tables import apply_levels, read_levels
from ood_lab.data.sources.reading_warnings import Tell
from ood_lab.data.sources.source_settings import Given, Reading, source_of
from ood_lab.data.transforms.few_shot import ALL, even_rows, few_shot, only_rows

#: Training images of each class.
Shots = Annotated[int, Ge(ALL)]
#: Name of the set of :class:`Exposure`.
OUTLIERS = "outliers"


def batch_on_each(batch_size: int, per_device: int | None, devices: int) -> int:
    """Images of a training batch on each of so many devices.

    Raises:
        UserError: they do not divide ``batch_size``.
    """
    if per_device:
        return per_device
    if batch_size % devices:
        raise UserError(
            f"data.batch_size={batch_size} is the total of {devices} devices, which do "
            f"not divide it: give a multiple of {devices}, or the size on each device with "
            "+data.per_device_batch_size=..."
        )
    return batch_size // devices


@dataclass(frozen=True)
class Loading:
    """How batches are made.

    Args:
        batch_size: images a training batch, on all devices together.
        per_device_batch_size: images a training batch on each device, whatever their number; None =
            ``batch_size`` / devices.
        eval_batch_size: images per batch in validation, test and extraction; None = ``batch_size``.
        num_workers: loader processes; 0, and one batch in order = load in the main process.
        drop_last: omit the last, smaller training batch (batch norm does not like it),
            unless it is the only one.
        balanced: draw training images so that every class is equally frequent.
        pin_memory: page-locked batches; None = when there is a CUDA device.
    """

    batch_size: BatchSize
    eval_batch_size: BatchSize | None
    num_workers: Workers
    drop_last: bool
    balanced: bool
    pin_memory: bool | None
    per_device_batch_size: BatchSize | None

    def on_each(self, devices: int) -> int:
        """Images of a training batch on each of so many devices, see :func:`batch_on_each`."""
        return batch_on_each(self.batch_size, self.per_device_batch_size, devices)

    @property
    def evaluated(self) -> int:
        """Images per batch where nothing is trained."""
        return self.eval_batch_size or self.batch_size

    @property
    def pins(self) -> bool:
        """True where batches are page-locked."""
        return torch.cuda.is_available() if self.pin_memory is None else self.pin_memory


@dataclass(frozen=True)
class Checking:
    """What is checked before any work, and how files are known again.

    Args:
        check: ``auto``, ``full``, ``headers`` or ``off``, see :func:`check_data`.
        on_broken: ``stop`` at an unreadable image, or ``skip`` it.
        on_duplicates: ``warn`` of content shared by sets that must not, or ``stop``.
        identify: ``content`` or ``stat``, see
            :class:`~ood_lab.data.sources.image_files.FileDataset`.
        cache_dir: folder that remembers facts of unchanged files; None = nothing is remembered.
    """

    check: Mode
    on_broken: Literal["stop", "skip"]
    on_duplicates: Literal["warn", "stop"]
    identify: Identify
    cache_dir: StrPath | None


@dataclass(frozen=True)
class FewShots:
    """Some training images of each class.

    Everything that is fitted on ``train``, detectors too, then sees only these; val stays whole.

    Args:
        shots: training images of each class, see :func:`few_shot`; -1 = all.
        shot_seed: of that choice; None = the seed of the job.
    """

    shots: Shots
    shot_seed: Seed | None

    def apply(self, splits: dict[str, ImageDataset]) -> list[str]:
        """Chooses the images of ``train``."""
        if self.shots == ALL:
            return []
        train = splits["train"]
        splits["train"] = few_shot(train, self.shots, self.shot_seed)
        shots = self.shots if train.groups is None else counted(self.shots, "group")
        return [
            f"train: {len(splits['train']):,} of {len(train):,} images, {shots} a class; "
            "detectors that are fitted on train see only these"
        ]


@dataclass(frozen=True)
class Exposure:
    """Other images that training sees, and that nothing is evaluated on.

    Args:
        outliers: source of them, whose labels are not read; None = none.
    """

    outliers: Given | None

    def add(self, splits: dict[str, ImageDataset], checking: Checking, tell: Tell) -> list[str]:
        """Adds the set :data:`OUTLIERS`.

        Raises:
            UserError: there is such a set already, or the source cannot be read.
        """
        if self.outliers is None:
            return []
        if OUTLIERS in splits:
            raise UserError(f"data.outliers is a set '{OUTLIERS}': give that of data.ood another")
        source, cache = source_of(self.outliers, "data.outliers"), checking.cache_dir
        table, _, store = source.read([], Reading(tell, cache, checking.on_broken == "skip"))
        table = table[["path", "label"]]
        splits[OUTLIERS] = FileDataset(
            OUTLIERS,
            table,
            [],
            checking.identify,
            cache_dir=cache,
            store=store,
            decoding=decoding_of(splits["train"]),
        )
        return [f"{len(table):,} images of data.outliers are trained with, and not evaluated"]

    @staticmethod
    def check(splits: Splits) -> None:
        """Raises :class:`UserError` where outliers are among the images of another set."""
        if OUTLIERS not in splits:
            return
        compared = [data for name, data in splits.items() if name != OUTLIERS]
        if overlaps := shared_content(compared, splits[OUTLIERS]):
            raise UserError(
                "training would see, as outliers, images that are ID or evaluated: "
                f"{'; '.join(map(str, overlaps))}. Remove them from data.outliers"
            )


@dataclass(frozen=True)
class Cut:
    """A few batches of every set.

    Args:
        max_batches: so many at most, taken at equal steps through a set; None = all images. Set by
            ``debug=true``.
    """

    max_batches: int | None

    def apply(self, splits: dict[str, ImageDataset], loading: Loading) -> list[str]:
        """Cuts every set."""
        if self.max_batches is None:
            return []
        for name, data in splits.items():
            splits[name] = self.of(data, loading)
        return [f"{self.max_batches} batches of every set, and no more"]

    def of(self, data: ImageDataset, loading: Loading) -> ImageDataset:
        """What is left of one set."""
        if self.max_batches is None:
            return data
        size = loading.batch_size if data.name == "train" else loading.evaluated
        return only_rows(data, even_rows(len(data), self.max_batches * size))


@dataclass(frozen=True)
class Division:
    """Measured levels of shift.

    Args:
        levels: file with those of the OOD sets, see
            :func:`~ood_lab.data.sources.level_tables.read_levels`; None = those that the sets bring
            along.
    """

    levels: StrPath | None

    def apply(self, ood: Splits, cut: Cut) -> list[str]:
        """Gives OOD sets their levels; of those that were ``cut``, to the images that are left."""
        if not self.levels:
            return []
        table = read_levels(self.levels)
        if cut.max_batches is not None:  # made for all images of a set
            here = {(name, str(p)) for name, data in ood.items() for p in data.table["path"]}
            pairs = zip(table["dataset"], table["path"].astype(str), strict=True)
            table = table[[pair in here for pair in pairs]]
        apply_levels(ood, table, f"data.levels={self.levels}")
        return [f"levels of shift: {self.levels}"]
