"""What is known of each question, so that results can be divided by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.annotations.image_contents import Contents, Cooccurrence
from ood_lab.lvlm.image_text.clip import ClipSpace
from ood_lab.lvlm.parsers import YES
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import LEVELS

#: Which area a category with several objects has: of the union of its boxes, or its largest object.
AreaOf = Literal["union", "largest"]
#: Edges of squares, pixels: ORIC's, and COCO's own.
TIER_EDGES, COCO_EDGES = (24.0, 96.0), (32.0, 96.0)
TIERS = ("small", "medium", "large")


def with_facts(
    questions: pd.DataFrame,
    annotations: Annotations,
    contents: Contents,
    area_of: AreaOf = "union",
    edges: tuple[float, float] = TIER_EDGES,
) -> pd.DataFrame:
    """The same rows with what annotations say of them.

    - ``p_context``: ``P(object | all other categories of the image)``, see
      :mod:`ood_lab.lvlm.annotations.image_contents`: low = incongruous;
    - ``area``, ``area_share`` and ``tier`` of an object that is there: ``small`` below
      ``edges[0]^2`` pixels, ``medium``, ``large`` from ``edges[1]^2`` on; ``coco_tier`` is the same
      by :data:`COCO_EDGES`, where these are others;
    - the known levels of shift of the image.

    Args:
        questions: ``row, object, label``.
        annotations: the images.
        contents: what is in them.
        area_of: which area counts.
        edges: of the tiers.
    """
    rows = questions["row"].to_numpy(np.int64)
    codes = pd.Index(contents.categories).get_indexer(pd.Index(questions["object"]))
    expected = Cooccurrence(contents.present).expected(rows, contents.present[rows])
    every = np.arange(len(questions))
    images = annotations.images
    known = pd.Series(annotated_areas(contents, area_of), [contents.rows, contents.codes])
    area = np.asarray(known.reindex(pd.MultiIndex.from_arrays([rows, codes])), np.float64)
    area = np.where(questions["label"] == YES, area, np.nan)
    pixels = (images["width"] * images["height"]).to_numpy(np.float64)[rows]
    results = questions.assign(
        p_context=expected[every, codes],
        area=area,
        area_share=area / np.maximum(pixels, 1),
        tier=tiers(area, edges),
    )
    if tuple(edges) != COCO_EDGES:
        results["coco_tier"] = tiers(area, COCO_EDGES)
    for name in LEVELS:
        if name in images:
            results[name] = images[name].to_numpy()[rows]
    return results


def with_cosines(questions: pd.DataFrame, space: ClipSpace, names: Sequence[str]) -> pd.DataFrame:
    """The same rows with the ``cosine`` of image and text.

    Args:
        questions: ``row, object``.
        space: features of the images, and of the texts of ``names``.
        names: of all objects.
    """
    rows = questions["row"].to_numpy(np.int64)
    codes = pd.Index(names).get_indexer(pd.Index(questions["object"]))
    cosine = np.einsum("nd,nd->n", space.images[rows], space.labels[codes])
    return questions.assign(cosine=cosine)


def tiers(area: Floats, edges: tuple[float, float] = TIER_EDGES) -> NDArray[np.object_]:
    """Tier of each area in pixels; None where there is none (NaN)."""
    place = np.searchsorted(np.square(edges), area, side="right")
    names = np.array([*TIERS, None], dtype=object)
    results: NDArray[np.object_] = names[np.where(np.isnan(area), len(TIERS), place)]
    return results


def annotated_areas(contents: Contents, area_of: AreaOf) -> Floats:
    """The area of every annotated category of an image, pixels; the same as that of questions."""
    return contents.areas if area_of == "union" else contents.largest
