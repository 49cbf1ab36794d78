"""A few photographs in folders, as a user has them."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_photos(root: Path, size: tuple[int, int], suffix: str) -> tuple[str, ...]:
    """Three classes of 20 pictures that differ in colour, and 12 pictures of noise.

    They lie in ``root/id`` and ``root/ood``; returned are the arguments that name them, without
    loader processes, which take longer to start than to read so few.
    """
    rng, (width, height) = np.random.default_rng(0), size
    for position, name in enumerate(("apple", "pear", "plum")):
        (root / "id" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 90, (height, width, 3))
            pixels[..., position] += 150
            Image.fromarray(pixels.astype(np.uint8)).save(root / "id" / name / f"{i}.{suffix}")
    (root / "ood").mkdir()
    for i in range(12):
        pixels = rng.integers(0, 255, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(root / "ood" / f"{i}.{suffix}")
    places = f"data.id.train={root}/id", f"data.ood.noise={root}/ood"
    return "data=folder", *places, "data.num_workers=0"
