"""Reading annotations of COCO's full size.

Run by hand: ``python -m tests.benchmarks.annotations``. Writes files as large as COCO's
``instances_val2017.json`` (5,000 images, 36,781 annotations) and ``instances_train2017.json``
(118,287 and 860,001), outlines included, and reads each as ``annotations=coco`` does, images
checked; beside it, pycocotools' own reader.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ood_lab.lvlm.annotations.coco import CocoAnnotations

SIZES = {"val2017": (5_000, 36_781), "train2017": (118_287, 860_001)}
#: Numbers of an outline; the file of train2017 then has about its real 450 MB.
OUTLINE = 58


def write(folder: Path, images: int, annotations: int) -> Path:
    """A file in COCO's format, and an empty file for every image."""
    rng = np.random.default_rng(0)
    names = [f"{number:012d}.jpg" for number in range(images)]
    (folder / "images").mkdir(parents=True)
    for name in names:
        (folder / "images" / name).touch()
    outlines = [
        ", ".join(f"{value:.2f}" for value in rng.uniform(0, 640, OUTLINE)) for _ in range(50)
    ]
    file = folder / "instances.json"
    with file.open("w") as out:
        out.write('{"info": {"description": "synthetic"}, "licenses": [], "images": [')
        out.write(
            ", ".join(
                f'{{"license": 1, "file_name": "{name}", "coco_url": "", "height": 480, '
                f'"width": 640, "date_captured": "", "flickr_url": "", "id": {number}}}'
                for number, name in enumerate(names)
            )
        )
        out.write('], "annotations": [')
        image, category = rng.integers(images, size=annotations), rng.integers(80, size=annotations)
        boxes = rng.uniform(0, 300, (annotations, 4)).round(2)
        for row in range(annotations):
            out.write(
                f'{", " if row else ""}{{"segmentation": [[{outlines[row % 50]}]], '
                f'"area": {boxes[row, 2] * 99:.4f}, "iscrowd": 0, "image_id": {image[row]}, '
                f'"bbox": {boxes[row].tolist()}, "category_id": {category[row] + 1}, "id": {row}}}'
            )
        categories = [f'{{"supercategory": "x", "id": {n + 1}, "name": "c{n}"}}' for n in range(80)]
        out.write('], "categories": [' + ", ".join(categories) + "]}")
    return file


def timed(name: str, work: Callable[[], object]) -> None:
    """Runs in a process of its own, so that peaks of memory are told apart."""
    pid = os.fork()
    if not pid:
        before, start, cpu = _peak(), time.perf_counter(), time.process_time()
        work()
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(f"  {name}: {wall:.1f} s wall, {cpu:.1f} s processor, +{_peak() - before:.2f} GB")
        os._exit(0)
    os.waitpid(pid, 0)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def with_pycocotools(file: Path) -> None:
    """The same file by pycocotools, silenced."""
    from pycocotools.coco import COCO

    with contextlib.redirect_stdout(io.StringIO()):
        COCO(str(file))


def main() -> None:
    """Writes and reads both sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    for size in parser.parse_args().sizes:
        with tempfile.TemporaryDirectory() as folder:
            file = write(Path(folder) / size, *SIZES[size])
            print(f"{size}: {file.stat().st_size / 1e6:.0f} MB", flush=True)
            source = CocoAnnotations(file, file.parent / "images")
            timed("annotations=coco", source.read)
            timed("with identity", lambda source=source: source.read().identity)
            timed("pycocotools", lambda file=file: with_pycocotools(file))


if __name__ == "__main__":
    main()
