"""What a check of datasets reports: sets, findings, shared content, the size of ID images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ood_lab.data.dataset import ID_SPLITS, ImageDataset, Splits
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.schema.arrays import spaced_rows
from ood_lab.schema.run_record import Finding


@dataclass(frozen=True)
class SetSummary:
    """One row of the report.

    Attributes:
        name: ``train``, ``val``, ``test`` or an OOD set.
        images: number of images, unreadable ones included.
        classes: number of ID classes with at least one image; 0 for an OOD set.
        per_class: smallest and largest number of images of an ID class; None without labels.
        median_size: width and height of the image of median area; None without files.
        common_size: width and height that all images share; None where they differ.
        sides: shortest and longest side in pixels.
        formats: share of each file format, largest first.
        grey: share of images without colour (of those decoded); None where unknown.
        broken: number of unreadable images.
    """

    name: str
    images: int
    classes: int = 0
    per_class: tuple[int, int] | None = None
    median_size: tuple[int, int] | None = None
    common_size: tuple[int, int] | None = None
    sides: tuple[int, int] | None = None
    formats: Mapping[str, float] = field(default_factory=dict)
    grey: float | None = None
    broken: int = 0


@dataclass(frozen=True)
class Overlap:
    """Images of ``second`` whose content is also in ``first``.

    Attributes:
        first: a split, or ``ID`` for any of them.
        second: a split or an OOD set.
        count: number of such images of ``second``.
        example: one of them and its twin in ``first``.
        rows: of them in ``second``; empty where they are only counted.
    """

    first: str
    second: str
    count: int
    example: tuple[str, str]
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        here, there = self.example
        images = "image" if self.count == 1 else "images"
        return f"{self.count:,} {images} of {self.second} also in {self.first}: {here} = {there}"

    @property
    def finding(self) -> Finding:
        """The sentence, with the sets whose numbers it concerns: train and val have none."""
        return Finding(str(self), tuple(s for s in (self.first, self.second) if s != "ID"))


@dataclass(frozen=True)
class CheckReport:
    """The result of :func:`~ood_lab.data.checks.dataset_checks.check_data`.

    Attributes:
        sets: one summary per set, in order.
        overlaps: the same content in sets that must not share any.
        differences: what else to know, such as what tells an OOD set from ID without looking at
            the content.
        notes: how the check was done and what was done to the data.
        broken: rows of the unreadable images, by set.
        files: ``path`` and statistics of every file, see
            :func:`~ood_lab.data.checks.dataset_checks.file_statistics`.
    """

    sets: list[SetSummary]
    overlaps: list[Overlap]
    differences: list[Finding]
    notes: list[str]
    broken: dict[str, list[int]]
    files: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False)

    @property
    def findings(self) -> list[Finding]:
        """Everything to look at before a number is believed."""
        return [*(overlap.finding for overlap in self.overlaps), *self.differences]

    @property
    def warnings(self) -> list[str]:
        """The findings as sentences."""
        return list(map(str, self.findings))

    @property
    def rows(self) -> list[dict[str, str]]:
        """The sets as rows of a table, by heading."""
        files = any(summary.median_size for summary in self.sets)
        rows = []
        for summary in self.sets:
            row = {
                "set": summary.name,
                "images": f"{summary.images:,}",
                "classes": str(summary.classes or "–"),
                "per class": _span(summary.per_class),
            }
            row |= _file_cells(summary) if files else {}
            rows.append(row | ({"broken": f"{summary.broken:,}"} if self.broken else {}))
        return rows


def _file_cells(summary: SetSummary) -> dict[str, str]:
    size = summary.median_size
    formats = [
        name if share > 0.995 else f"{name} {share:.0%}" for name, share in summary.formats.items()
    ]
    return {
        "median size": "–" if size is None else "×".join(map(str, size)),
        "sides px": _span(summary.sides),
        "grey": "–" if size is None or summary.grey is None else f"{summary.grey:.0%}",
        "format": ", ".join(formats) or "–",
    }


def _span(ends: tuple[int, int] | None) -> str:
    if ends is None:
        return "–"
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def shared_content(firsts: Iterable[ImageDataset], second: ImageDataset) -> list[Overlap]:
    """The content that ``second`` shares with each of ``firsts``.

    Files are the same if their sha256 is; only files of equal size are read. Sets that are not
    files share everything if their identities agree, and nothing else is known of them.
    """
    return [overlap for first in firsts if (overlap := _shared(first, second))]


def _shared(first: ImageDataset, second: ImageDataset) -> Overlap | None:
    if isinstance(first, FileDataset) and isinstance(second, FileDataset):
        return _shared_files(first, second)
    if first.identity != second.identity:
        return None
    example = (str(second.table["path"].iat[0]), str(first.table["path"].iat[0]))
    return Overlap(first.name, second.name, len(second), example, tuple(range(len(second))))


def _shared_files(first: FileDataset, second: FileDataset) -> Overlap | None:
    sizes = {d.name: pd.Series([d.store.stat(p)[0] for p in d.paths]) for d in (first, second)}
    common = set(sizes[first.name]) & set(sizes[second.name])
    if not common:
        return None
    tables = []
    for data in (first, second):
        paths = pd.Series(data.paths)[sizes[data.name].isin(common)]
        hashes = data.content_hashes(list(paths.index))
        tables.append(pd.DataFrame({"path": paths, "sha256": hashes}))
    there, here = (table[table["sha256"] != ""] for table in tables)
    return twins_of(first.name, there, second.name, here)


def twins_of(first: str, there: pd.DataFrame, second: str, here: pd.DataFrame) -> Overlap | None:
    """The files ``here``, of a set ``second``, whose content is also ``there``, in ``first``.

    Both have the columns ``path`` and ``sha256``; the index of ``here`` is the row of each.
    """
    twins = here[here["sha256"].isin(there["sha256"])]
    if twins.empty:
        return None
    twin = twins.iloc[0]
    other = there.loc[there["sha256"] == twin["sha256"], "path"].iloc[0]
    example = (str(twin["path"]), str(other))
    return Overlap(first, second, len(twins), example, tuple(twins.index))


#: Images that are opened where the check of the data has opened none.
SIZE_SAMPLE = 32


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
    id_sets = [s for s in checked if s.name in ID_SPLITS]
    if sizes := [(s.median_size, s.common_size) for s in id_sets if s.median_size]:
        (width, height), _ = sizes[0]
        return ImageSize(width, height, shared=len({size for of in sizes for size in of}) == 1)
    train = splits["train"]
    rows = spaced_rows(len(train), SIZE_SAMPLE)
    looked_at = sorted((train.load_image(int(row)).size for row in rows), key=np.prod)
    width, height = looked_at[len(looked_at) // 2]
    return ImageSize(width, height, shared=len(set(looked_at)) == 1)
