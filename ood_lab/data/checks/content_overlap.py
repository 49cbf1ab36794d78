"""The content that sets have in common which are meant to be apart."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ood_lab.data.checks.check_report import Overlap
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import FileDataset


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
