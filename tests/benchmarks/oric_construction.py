"""ORIC's construction at the size of COCO's val2014.

Run by hand: ``python -m tests.benchmarks.oric_construction``. 40,504 images with 291,875 objects of
80 categories, synthetic, and features of 512 numbers; no chat model. Contents (areas of unions,
co-occurrence), 500 pairs, the three ablations, POPE's three kinds, and facts of all questions; then
the nearest image of every image, which a construction never needs.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, get_args

import numpy as np
import pandas as pd

from ood_lab.lvlm.annotations.annotation_table import Annotations, objects_table
from ood_lab.lvlm.annotations.image_contents import contents_of
from ood_lab.lvlm.benchmarks.oric.construction import CooccurrenceJudge, OricConstruction
from ood_lab.lvlm.benchmarks.oric.pope_sets import Sampling, pope_of
from ood_lab.lvlm.benchmarks.oric.question_drawing import Builder
from ood_lab.lvlm.benchmarks.oric.set_analyses import with_facts
from ood_lab.lvlm.image_text.clip import ClipSpace

IMAGES, OBJECTS, CATEGORIES, WIDTH = 40_504, 291_875, 80, 512
_CONTEXTS = 30
Result = TypeVar("Result")


def annotations(rng: np.random.Generator, images: int, objects: int) -> Annotations:
    """Objects that keep company: each image is of a context with its own frequent categories."""
    likely = rng.dirichlet(np.full(CATEGORIES, 0.15), size=_CONTEXTS)
    context = rng.integers(_CONTEXTS, size=images)
    image = np.sort(rng.integers(images, size=objects))
    cumulated = likely.cumsum(axis=1)[context[image]]
    category = (rng.random(objects)[:, None] > cumulated).sum(axis=1).clip(max=CATEGORIES - 1)
    corner = rng.uniform(0, 400, (objects, 2))
    sides = np.exp(rng.normal(4, 1, (objects, 2))).clip(2, 240)
    boxes = np.column_stack([corner, sides]).round(2)
    names = [f"thing {number}" for number in range(CATEGORIES)]
    table = pd.DataFrame({"image": np.arange(images), "width": 640, "height": 640})
    table["file"] = [f"{number:012d}.jpg" for number in range(images)]
    area = 0.6 * boxes[:, 2] * boxes[:, 3]
    made = objects_table(image, category, names, boxes, area, np.zeros(objects, bool))
    return Annotations("synthetic", tuple(names), Path("/none"), table, made)


def space(rng: np.random.Generator, images: int) -> ClipSpace:
    """Unit features in clusters, as those of a CLIP are."""
    centres = rng.standard_normal((300, WIDTH), dtype=np.float32)
    features = centres[rng.integers(300, size=images)]
    features += 0.5 * rng.standard_normal((images, WIDTH), dtype=np.float32)
    labels = rng.standard_normal((CATEGORIES, WIDTH), dtype=np.float32)
    for each in (features, labels):
        each /= np.linalg.norm(each, axis=1, keepdims=True)
    return ClipSpace(features, labels)


def main() -> None:
    """Prints seconds of every step and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--pairs", type=int, default=500)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    data = annotations(rng, given.images, OBJECTS * given.images // IMAGES)
    where = space(rng, given.images)
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    contents = _timed("contents", lambda: contents_of(data))
    builder = Builder(contents, where, CooccurrenceJudge(0.25), seed=0)
    how = OricConstruction(pairs=given.pairs)
    bench = _timed("construction", lambda: builder.oric(how))["bench"]
    tables = [bench.questions]
    for name in ("uniform", "pos_only", "neg_only"):
        tables.append(_timed(f"ablation {name}", lambda name=name: builder.ablation(how, name)))
    count = len(bench.questions)
    for kind in get_args(Sampling):
        tables.append(_timed(f"POPE {kind}", lambda kind=kind: pope_of(contents, kind, count, 0)))
    whole = pd.concat(tables, ignore_index=True)
    _timed("facts", lambda: with_facts(whole, data, contents))
    spent = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{len(bench.questions):,} questions of ORIC, {len(whole):,} in all: {spent:.1f} s")
    print(f"peak memory {peak / 2**20:.2f} GiB, {before / 2**20:.2f} GiB of it before")
    every = np.arange(len(contents))
    _timed("nearest image of every image", lambda: where.nearest(every, every))


def _timed(what: str, work: Callable[[], Result]) -> Result:
    start, cpu = time.perf_counter(), time.process_time()
    found = work()
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    print(f"{what:<30} {wall:7.2f} s, of processor time {used:7.2f} s")
    return found


if __name__ == "__main__":
    main()
