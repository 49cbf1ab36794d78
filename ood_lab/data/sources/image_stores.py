"""Where the images of a set lie, and how one of them is opened."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from PIL import Image

from ood_lab.common.file_records import Stamp, ends_sha256, file_sha256, stamp


class Store(Protocol):
    """Opens images by their address, which is in the column ``path`` of a set's table.

    Attributes:
        threads: at most so many may read at once; None = as many as the machine has.
        changeless: True if :meth:`stat` changes whenever an image does, so that what is known of
            an image can be remembered.
    """

    threads: int | None
    changeless: bool

    def stat(self, path: str) -> Stamp:
        """Changes with the image; -1 in all fields where there is none."""

    def open(self, path: str) -> Image.Image:
        """The image, which may not have been decoded yet."""

    def sha256(self, path: str) -> str:
        """sha256 (hex) of the encoded image where it is encoded, else of its pixels."""

    def ends(self, path: str) -> str:
        """sha256 (hex) of the ends of the encoded image, see ``ends_sha256``; else ``sha256``."""


class Files:
    """Each image is a file, addressed by its absolute path."""

    threads: int | None = None
    changeless = True

    stat = staticmethod(stamp)
    open = staticmethod(Image.open)
    sha256 = staticmethod(file_sha256)
    ends = staticmethod(ends_sha256)


FILES = Files()


class ShardMember(NamedTuple):
    """Position of the bytes of an image in a shard."""

    shard: str
    start: int
    size: int
    version: tuple[int, int]


class ShardStore:
    """Images within uncompressed tar files: ``<shard>#<name in it>``.

    A shard is opened for each image, so that any number of processes may read.

    Args:
        members: by address.
    """

    threads: int | None = None
    changeless = True

    def __init__(self, members: Mapping[str, ShardMember]) -> None:
        self.members = members

    def stat(self, path: str) -> Stamp:
        """Size of the image, and of its shard the rest."""
        member = self.members[path]
        mtime_ns, change = member.version
        return Stamp(member.size, mtime_ns, change)

    def read(self, path: str) -> bytes:
        """The encoded image.

        Raises:
            OSError: the shard is gone or has become shorter.
        """
        shard, start, size, _ = self.members[path]
        with open(shard, "rb") as file:
            file.seek(start)
            content = file.read(size)
        if len(content) < size:
            raise OSError(f"'{shard}' ends within it")
        return content

    def open(self, path: str) -> Image.Image:
        """The image of a member."""
        return Image.open(io.BytesIO(self.read(path)))

    def sha256(self, path: str) -> str:
        """Of the member, which is that of the same image in a file."""
        return hashlib.sha256(self.read(path)).hexdigest()

    def ends(self, path: str) -> str:
        """Of the member."""
        shard, start, size, _ = self.members[path]
        return ends_sha256(shard, start, size)


class CombinedStores:
    """Several stores as one.

    Args:
        stores: the store of each image, by address.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.stores = dict(stores)
        kinds = set(self.stores.values())
        self.threads = min((s.threads for s in kinds if s.threads is not None), default=None)
        self.changeless = all(store.changeless for store in kinds)

    def stat(self, path: str) -> Stamp:
        """See :class:`Store`."""
        return self.stores[path].stat(path)

    def open(self, path: str) -> Image.Image:
        """See :class:`Store`."""
        return self.stores[path].open(path)

    def sha256(self, path: str) -> str:
        """See :class:`Store`."""
        return self.stores[path].sha256(path)

    def ends(self, path: str) -> str:
        """See :class:`Store`."""
        return self.stores[path].ends(path)
