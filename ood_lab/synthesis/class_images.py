"""Images of chosen ImageNet classes, and how much of them their object fills."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.image_formats import image_extensions
from ood_lab.synthesis import Ledger, MainObject, progress_bar

log = logging.getLogger(__name__)


def list_images(classes: pd.DataFrame, root: Path) -> pd.DataFrame:
    """Columns ``path, label, wnid``: the images of the classes that have a folder."""
    rows, lacking = [], []
    for wnid, label in zip(classes["wnid"], classes["label"], strict=True):
        place = root / wnid
        files = sorted(place.iterdir()) if place.is_dir() else []
        pictures = [file for file in files if file.suffix.lower() in image_extensions()]
        rows += [(str(file.absolute()), label, wnid) for file in pictures]
        lacking += [] if pictures else [wnid]
    if not rows:
        raise UserError(f"'{root}' has images of none of the {len(classes)} classes: {lacking[0]}")
    if lacking:
        log.warning("no images of %d classes, such as %s", len(lacking), lacking[0])
    return pd.DataFrame(rows, columns=["path", "label", "wnid"])


def with_boxes(
    listed: pd.DataFrame, model: MainObject, boxes: Ledger, batch_size: int
) -> pd.DataFrame:
    """The images with ``score`` and ``share`` of their main box; known ones are not looked at."""
    todo = listed[~listed["path"].isin(list(boxes.answers))]
    with progress_bar("looking for the main objects of images", len(todo)) as progress:
        for start in range(0, len(todo), batch_size):
            batch = todo.iloc[start : start + batch_size]
            predicted = model([load_rgb(path) for path in batch["path"]], batch["label"].tolist())
            boxes.add((p, b._asdict()) for p, b in zip(batch["path"], predicted, strict=True))
            progress((start + len(batch)) / len(todo))
    answers = [boxes.answers[path] for path in listed["path"]]
    return listed.assign(**{key: [box[key] for box in answers] for key in ("score", "share")})
