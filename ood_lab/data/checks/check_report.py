"""What a check of datasets reports: sets, findings, shared content, the size of ID images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ood_lab.common.english import counted
from ood_lab.data.dataset import ID_SPLITS, ImageDataset, Splits
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.schema.arrays import spaced_rows
from ood_lab.schema.results import Tables
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
    rows: tuple[int, ...]

    def __str__(self) -> str:
        here, there = self.example
        images = counted(self.count, "image")
        return f"{images} of {self.second} also in {self.first}: {here} = {there}"

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
            if files:
                size, grey = summary.median_size, summary.grey
                formats = [
                    name if share > 0.995 else f"{name} {share:.0%}"
                    for name, share in summary.formats.items()
                ]
                row |= {
                    "median size": "–" if size is None else "×".join(map(str, size)),
                    "sides px": _span(summary.sides),
                    "grey": "–" if grey is None else f"{grey:.0%}",
                    "format": ", ".join(formats) or "–",
                }
            rows.append(row | ({"broken": f"{summary.broken:,}"} if self.broken else {}))
        return rows


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
        sets = {data.name: data for data in (first, second)}
        files = listed_files(sets)
        places = files[["split", "path"]].to_numpy()
        files["bytes"] = [sets[name].store.stat(path).bytes for name, path in places]
        by_set = hashed(files, sets, within=False)
        return twins_of(first.name, second.name, by_set)
    if first.identity != second.identity:
        return None
    example = second.address(0), first.address(0)
    return Overlap(first.name, second.name, len(second), example, tuple(range(len(second))))


def listed_files(sets: Mapping[str, FileDataset]) -> pd.DataFrame:
    """``split, row, path`` of every image that is in a file."""
    parts = [
        pd.DataFrame({"split": name, "row": np.arange(len(data)), "path": data.paths})
        for name, data in sets.items()
    ]
    empty = pd.DataFrame({"split": [], "row": [], "path": []}, dtype=object)
    return pd.concat(parts, ignore_index=True) if parts else empty


def hashed(
    files: pd.DataFrame, sets: Mapping[str, FileDataset], within: bool
) -> dict[str, pd.DataFrame]:
    """By set, the files whose size one of another set shares, with their ``sha256``.

    ``within`` a set, too: in a large one nearly every size comes twice, and all of it is read.
    """
    by_size = files.groupby("bytes")["split"]
    shared = by_size.transform("size" if within else "nunique") > 1
    alike = files[shared & (files["bytes"] > 0)]
    by_set = {}
    for name, part in alike.groupby("split", sort=False):
        part = part.assign(sha256=sets[str(name)].content_hashes(part["row"].tolist()))
        by_set[str(name)] = part[part["sha256"] != ""]
    return {name: part for name, part in by_set.items() if len(part)}


def twins_of(first: str, second: str, by_set: Tables) -> Overlap | None:
    """The files of a set ``second`` whose content is also in ``first``; ``ID`` is train to test."""
    inside = [name for name in (ID_SPLITS if first == "ID" else (first,)) if name in by_set]
    if not inside or second not in by_set:
        return None
    there, here = pd.concat([by_set[name] for name in inside]), by_set[second]
    twins = here[here["sha256"].isin(there["sha256"])]
    if twins.empty:
        return None
    twin = twins.iloc[0]
    other = there.loc[there["sha256"] == twin["sha256"], "path"].iloc[0]
    return Overlap(first, second, len(twins), (twin["path"], other), tuple(twins["row"]))


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
