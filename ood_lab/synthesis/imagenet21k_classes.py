"""ImageNet-21K's classes, those that have to do with a concept, and their images."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.data.sources.image_formats import is_picture
from ood_lab.synthesis.dataset_files import Ledger
from ood_lab.synthesis.image_batches import batches
from ood_lab.synthesis.pretrained_models import MainObject


@dataclass(frozen=True)
class Synset:
    """A class of ImageNet.

    Attributes:
        wnid: ``n`` and the number in WordNet.
        lemmas: its names, comma-separated.
        definition: WordNet's gloss; may be empty.
    """

    wnid: str
    lemmas: str
    definition: str

    @property
    def label(self) -> str:
        """The first of its names."""
        return self.lemmas.split(",")[0].strip()


def imagenet21k_synsets() -> tuple[list[Synset], set[str]]:
    """The 21,841 classes of ImageNet-21K (fall 2011), and the wnids of ImageNet-1K's 1,000."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-22k")
    lemmas, detailed = info.label_descriptions(), info.label_descriptions(detailed=True)
    synsets = [
        Synset(wnid, names, text.removeprefix(names).removeprefix(":").strip())
        for wnid, names, text in zip(info.label_names(), lemmas, detailed, strict=True)
    ]
    return synsets, set(ImageNetInfo("imagenet-1k").label_names())


def select_by_keyword(synsets: Iterable[Synset], keywords: Sequence[str]) -> dict[str, str]:
    """The first keyword that is a word in a class's names or definition, by wnid.

    Case does not matter, and a plural counts: ``pot`` finds "flower pots", not "potato".
    """
    patterns = {
        word: re.compile(rf"\b{re.escape(word)}(?:s|es)?\b", re.IGNORECASE) for word in keywords
    }
    hits = {}
    for synset in synsets:
        text = f"{synset.lemmas}; {synset.definition}"
        hit = next((word for word, pattern in patterns.items() if pattern.search(text)), None)
        if hit is not None:
            hits[synset.wnid] = hit
    return hits


log = logging.getLogger(__name__)


def list_images(classes: pd.DataFrame, root: Path) -> pd.DataFrame:
    """Columns ``path, label, wnid``: the images of the classes that have a folder."""
    rows, lacking = [], []
    for wnid, label in zip(classes["wnid"], classes["label"], strict=True):
        place = root / wnid
        files = sorted(place.iterdir()) if place.is_dir() else []
        pictures = [file for file in files if is_picture(file.name)]
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
    pairs = list(zip(todo["path"], todo["label"], strict=True))
    for batch in batches("looking for the main objects of images", pairs, batch_size):
        predicted = model([load_rgb(path) for path, _ in batch], [label for _, label in batch])
        boxes.add((path, b._asdict()) for (path, _), b in zip(batch, predicted, strict=True))
    answers = pd.DataFrame([boxes.answers[path] for path in listed["path"]], index=listed.index)
    return listed.join(answers)
