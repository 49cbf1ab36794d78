"""The same images as each kind of source."""

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

from pictures import Pictures, folders, save_huggingface, write_shards
from torchvision.datasets import ImageFolder

from ood_lab.data.sources import huggingface

SETS = {"train": 0, "test": 10_000, "far": 20_000}
OWN = ("pil", "array", "tensor", "floats", "dict", "named", "instance", "image_folder")
HUGGING_FACE = ("saved", "parquet", "parquet_file", "hf_folder")
SHARDS = ("shards", "range", "pattern")
#: Of MosaicML's streaming, where it is installed.
MOSAIC = ("mosaic",) if importlib.util.find_spec("streaming") else ()


def write_kinds(root: Path, **each: int) -> Path:
    """Every set as a folder of PNG, as shards, as Hugging Face's and as MosaicML's."""
    for name, seed in SETS.items():
        folders(root / name, each=each.get(name, 4), first_seed=seed, suffix="png")
        write_shards(root / name, root / "shards" / name)
        save_huggingface(root / name, root / "hf" / name)
        save_parquet(root / "hf" / name, root / "parquet" / name)
        if MOSAIC:
            write_mosaic(root / name, root / "mosaic" / name)
    return root


def save_parquet(saved: Path, root: Path) -> Path:
    """What ``save_to_disk`` wrote as two Parquet files."""
    import datasets

    data = datasets.load_from_disk(str(saved))
    root.mkdir(parents=True)
    half = len(data) // 2
    for part, rows in enumerate((range(half), range(half, len(data)))):
        data.select(rows).to_parquet(root / f"train-{part:05}-of-00002.parquet")
    data.to_parquet(root.with_suffix(".parquet"))
    return root


def write_mosaic(folder: Path, root: Path, per_shard: int = 5_000) -> Path:
    """The PNG files of class folders as shards of MosaicML's streaming."""
    from PIL import Image
    from streaming import MDSWriter

    columns = {"image": "png", "label": "str"}
    with MDSWriter(out=str(root), columns=columns, size_limit=per_shard) as writer:
        for file in sorted(folder.rglob("*.png")):
            writer.write({"image": Image.open(file), "label": file.parent.name})
    return root


def kinds(root: Path, name: str) -> dict[str, Any]:
    """A set as each kind of source."""
    own = partial(Pictures, root=str(root / name))
    found = {
        "folder": str(root / name),
        "pil": own,
        "array": partial(own, kind="array"),
        "tensor": partial(own, kind="tensor"),
        "floats": partial(own, kind="floats"),
        "dict": partial(own, keys=("img", "target")),
        "named": {"dataset": partial(own, keys=("a", "b")), "image": "a", "label": "b"},
        "instance": own(),
        "image_folder": partial(ImageFolder, root=str(root / name)),
        "saved": str(root / "hf" / name),
        "parquet": partial(huggingface.load, path=str(root / "parquet" / name)),
        "parquet_file": partial(huggingface.load, path=str(root / "parquet" / f"{name}.parquet")),
        "hf_folder": partial(huggingface.load, path=str(root / name)),
        "shards": str(root / "shards" / name),
        "range": str(root / "shards" / name / "part-{000..001}.tar"),
        "pattern": str(root / "shards" / name / "*.tar"),
    }
    if MOSAIC:
        from streaming import LocalDataset

        found["mosaic"] = partial(LocalDataset, local=str(root / "mosaic" / name))
    return found
