"""Pixels of generated images, kept once for all processes of a job on one machine."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from ood_lab.schema.arrays import PixelArray

#: Memory that the images of one set may take; those beyond it are made again when asked for.
MOST_BYTES = 2**30


class KeptImages:
    """RGB images of one size, 8 bits per channel, each made when it is first asked for.

    The memory is shared with processes forked later, such as loader workers: what one of them
    has made, the others and later epochs read. Pages that hold no image yet take no memory. A
    copy that travels by pickle (to a process that is not forked) starts empty.

    Args:
        rows: number of images.
        height: pixels.
        width: pixels.
    """

    def __init__(self, rows: int, height: int, width: int) -> None:
        self._arguments = (rows, height, width)
        image_bytes = height * width * 3
        kept = min(rows, MOST_BYTES // image_bytes)
        # Anonymous and shared: neither a file nor the size of /dev/shm limits it.
        memory = mmap.mmap(-1, max(1, kept * (image_bytes + 1)))
        self._made = np.frombuffer(memory, bool, kept)
        pixels = np.frombuffer(memory, np.uint8, kept * image_bytes, offset=kept)
        self._pixels = pixels.reshape(kept, height, width, 3)

    def get(self, row: int, make: Callable[[], PixelArray]) -> PixelArray:
        """The image of a row, ``[height, width, 3] uint8``, not to be written to."""
        if row >= len(self._made):
            return make()
        if not self._made[row]:
            # Two processes may both make it, with the same pixels; the mark follows the pixels.
            self._pixels[row] = make()
            self._made[row] = True
        return self._pixels[row]

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptImages, self._arguments
