"""The most unusual of the ID images, among which a broken or wrong file would be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from ood_lab.common.english import counted
from ood_lab.report.rendering.blocks import Picture, Pictures
from ood_lab.report.rendering.misclassified_images import Thumbnails
from ood_lab.report.rendering.page import Page, Section
from ood_lab.report.rendering.thumbnails import Pictures as Images

#: Scores and p-values of all of them, in the run folder.
ID_IMAGES = "id_images.csv"
#: The most and the least unusual, each.
EXTREMES = 12
#: The detector that finds them in a run that scores detectors.
UNUSUAL_BY = "knn"


@dataclass(frozen=True)
class IDImages:
    """The ID images that p-values are ranks among.

    Attributes:
        table: ``path``, and of every detector ``<name>_score`` and ``<name>_p_value``.
        image: the image of a row, by the index of ``table``.
    """

    table: pd.DataFrame
    image: Callable[[int], Image.Image]


def unusual_id_images(own: IDImages, name: str, store: Thumbnails, dataset: str = "id") -> Pictures:
    """The ID images with the highest scores of a detector.

    Args:
        own: the images.
        name: of the detector.
        store: small pictures.
        dataset: what ``store`` calls the ID images.
    """
    rows = own.table.nlargest(EXTREMES, f"{name}_score")
    return Pictures(
        [
            Picture(said_of(at, "", name), store.number(dataset, int(row)))  # type: ignore[call-overload]
            for row, at in rows.iterrows()
        ],
        "Broken or wrong files would be among these; id_images.csv has all",
    )


def write_unusual_images(path: Path, own: IDImages, data: str) -> Path:
    """A page of the most unusual ID images by :data:`UNUSUAL_BY`, for a check of the data."""
    images = Images(lambda _, row: own.image(row))
    store = Thumbnails(images)
    shown = unusual_id_images(own, UNUSUAL_BY, store)
    page = Page(
        title=f"{data}: {counted(len(own.table), 'ID image')}",
        sections=[Section("Unusual ones among your ID images", [shown])],
        thumbnails=store.uris,
        definitions=[("p-value", "share of ID images that score as high, itself counted as one")],
        downloads=[ID_IMAGES],
    ).write(path)
    images.warn(path.name)
    return page


def said_of(at: pd.Series, predicted: str, name: str) -> str:
    """Name of the image, its class, p-value and score, and what else is known of it."""
    said = f"{predicted}; " if predicted else ""
    p, score = at[f"{name}_p_value"], at[f"{name}_score"]
    said += f"p = {p:.3g}, score {score:.4g}{', OOD' if at.get(f'{name}_is_ood') else ''}"
    beyond = at.get("beyond_id")  # ID images have no column of it, nor of being OOD
    said += f"; {beyond} than all ID images" if beyond else ""
    return f"{Path(at['path']).name}: {said}"
