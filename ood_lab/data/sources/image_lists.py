"""Lists of images of which nothing is known but their addresses."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.tensor_file import Batch, Transform
from ood_lab.data.dataset import UNKNOWN
from ood_lab.data.sources.folders import existing_folder
from ood_lab.data.sources.image_files import DECODING, load_rgb, reason
from ood_lab.data.sources.image_stores import FILES, Store
from ood_lab.data.sources.manifest import found_below, path_texts, read_file
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.data.sources.reading_warnings import to_log

#: Endings of tables and lists.
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".pq", ".txt", ".lst")


@dataclass(frozen=True)
class Addresses:
    """Images of one source.

    Attributes:
        texts: addresses in ``store``, or unchanged from a list.
        store: where the images are.
        base: folder that relative paths of a list start from; None = they are addresses as they
            are.
    """

    texts: Sequence[str]
    store: Store = FILES
    base: Path | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def address(self, row: int) -> str:
        """The absolute path, or the address in the store."""
        text = self.texts[row]
        return text if self.base is None else found_below(self.base, text)


class Listing:
    """Images without labels, of any number, of which nothing is known but their addresses.

    A dataset whose items are samples as in :class:`~ood_lab.data.dataset.ImageDataset`.

    Args:
        sources: one after the other.
        decoding: how pixels become 8 bits; a range of its own is part of the digest.
    """

    name = "images"
    #: What is made of them has a digest of the addresses in its own key.
    identity = ""
    groups: Tensor | None = None

    def __init__(self, sources: Sequence[Addresses], decoding: Decoding = DECODING) -> None:
        self.sources = list(sources)
        self.decoding = decoding
        self.transform: Transform | None = None
        self._ends = list(accumulate(map(len, self.sources)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _place(self, row: int) -> tuple[Addresses, int]:
        number = bisect_right(self._ends, row)
        return self.sources[number], row - (self._ends[number] - len(self.sources[number]))

    def address(self, row: int) -> str:
        """See :meth:`Addresses.address`."""
        source, inside = self._place(row)
        return source.address(inside)

    def store(self, row: int) -> Store:
        """The store of an image."""
        return self._place(row)[0].store

    def __getitem__(self, row: int) -> Batch:
        """The sample of a row.

        Raises:
            UserError: the image cannot be read; the message does not name it.
        """
        assert self.transform is not None
        address = self.address(row)
        try:
            image = load_rgb(address, self.store(row), self.decoding)
        except UserError as error:
            raise UserError(reason(error.__cause__ or error, address)) from error
        return {"image": self.transform(image), "index": row, "label": UNKNOWN}

    def digest(self, rows: range) -> str:
        """sha256 (hex) of addresses, and of the version of their store where that is known."""
        digest = hashlib.sha256()
        if self.decoding.pixel_range is not None:
            digest.update(f"{self.decoding.pixel_range}".encode())
        start = 0
        for source in self.sources:
            first, last = max(rows.start - start, 0), min(rows.stop - start, len(source))
            start += len(source)
            if first >= last:
                continue
            parts = [str(source.base), *source.texts[first:last]]
            if source.store is not FILES:  # files are not asked one by one before the run begins
                parts += [" ".join(map(str, source.store.stat(text))) for text in parts[1:]]
            digest.update("\0".join([*parts, ""]).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def read_paths(file: Path, root: StrPath | None) -> Addresses:
    """The paths of a table or list, unchanged: no file is looked for.

    Args:
        file: see :func:`~ood_lab.data.sources.manifest.read_manifest`, without labels.
        root: folder that relative paths start from; None = that of the file.

    Raises:
        UserError: it cannot be read, has no such column, or a row without a path.
    """
    base = existing_folder(file.parent if root is None else root)
    texts = list(path_texts(read_file(file, labelled=False, tell=to_log)["path"], file))
    if not texts:
        raise UserError(f"'{file}' contains no images")
    return Addresses(texts, FILES, base)
