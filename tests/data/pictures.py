"""Small generated image files for the tests of this package."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(path: Path, seed: int = 0, size: tuple[int, int] = (16, 16), **options) -> Path:
    """Writes noise, the same for the same seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return path


def truncate(path: Path) -> Path:
    """Cuts the last tenth off: the header stays whole."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 9 // 10])
    return path


def folders(root: Path, classes=("cat", "dog", "owl"), each: int = 6, first_seed: int = 0) -> Path:
    """Class folders of JPEG noise, every image different."""
    for c, name in enumerate(classes):
        for i in range(each):
            picture(root / name / f"{i:03}.jpg", seed=first_seed + 1000 * c + i)
    return root
