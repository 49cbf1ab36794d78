"""Small generated image files for the tests of this package."""

import io
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


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


def folders(
    root: Path, classes=("cat", "dog", "owl"), each: int = 6, first_seed: int = 0, suffix="jpg"
) -> Path:
    """Class folders of noise, every image different."""
    for c, name in enumerate(classes):
        for i in range(each):
            picture(root / name / f"{i:03}.{suffix}", seed=first_seed + 1000 * c + i)
    return root


class Pictures(Dataset):
    """The PNG files of class folders as a user's own data set gives them.

    Args:
        root: the folder.
        kind: of the images: ``pil``, ``array``, ``tensor`` or ``floats``.
        keys: samples are dicts with these keys for image and label; None = tuples.
        download: refused unless the folder is there.
    """

    def __init__(self, root: str, kind: str = "pil", keys=None, download: bool = False):
        if not Path(root).exists():
            raise RuntimeError("Dataset not found. You can use download=True to download it")
        self.files = sorted(Path(root).rglob("*.png"))
        self.classes = sorted({file.parent.name for file in self.files})
        self.kind, self.keys = kind, keys

    def __len__(self):
        return len(self.files)

    def __getitem__(self, row):
        image = Image.open(self.files[row])
        pixels = torch.from_numpy(np.array(image))
        image = {
            "pil": lambda: image,
            "array": pixels.numpy,
            "tensor": lambda: pixels.permute(2, 0, 1),
            "floats": lambda: pixels.permute(2, 0, 1) / 255,
            "normalised": lambda: pixels.permute(2, 0, 1) / 100 - 1,
            "unbounded": lambda: Image.fromarray(pixels[..., 0].float().numpy()),
            "random": lambda: torch.rand(3, 16, 16),
        }[self.kind]()
        label = self.classes.index(self.files[row].parent.name)
        return dict(zip(self.keys, (image, label), strict=True)) if self.keys else (image, label)


def write_shards(folder: Path, root: Path, per_shard: int = 7, labels: bool = True) -> Path:
    """The PNG files of class folders as shards of WebDataset, names of classes in ``.cls``."""
    root.mkdir(parents=True, exist_ok=True)
    files = sorted(folder.rglob("*.png"))
    for first in range(0, len(files), per_shard):
        with tarfile.open(root / f"part-{first // per_shard:03}.tar", "w") as tar:
            for row, file in enumerate(files[first : first + per_shard], first):
                tar.add(file, f"{row:05}.png")
                if labels:
                    name = file.parent.name.encode()
                    member = tarfile.TarInfo(f"{row:05}.cls")
                    member.size = len(name)
                    tar.addfile(member, io.BytesIO(name))
    return root


def save_huggingface(folder: Path, root: Path, image: str = "image", label: str = "label") -> Path:
    """The PNG files of class folders as Hugging Face's ``save_to_disk`` writes them."""
    import datasets

    files = sorted(folder.rglob("*.png"))
    names = sorted({file.parent.name for file in files})
    features = datasets.Features({image: datasets.Image(), label: datasets.ClassLabel(names=names)})
    rows = {
        image: [{"bytes": file.read_bytes(), "path": None} for file in files],
        label: [names.index(file.parent.name) for file in files],
    }
    datasets.Dataset.from_dict(rows, features).save_to_disk(str(root))
    return root
