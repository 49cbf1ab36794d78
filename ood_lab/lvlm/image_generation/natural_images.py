"""Are the made images like natural ones? Their features against those of annotated images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from ood_lab.clip import ClipModel
from ood_lab.common.files import write_csv, write_table
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.image_generation.compositions import Order
from ood_lab.lvlm.image_generation.pictures import file_of
from ood_lab.lvlm.image_text.base import image_features
from ood_lab.metrics.resampling.clustered_bootstrap import clustered, shares
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.scatter import component_labels, components_of, draw_clouds, styles_of

#: Name of the natural images among the sets.
NATURAL = "natural"
#: Natural images that the made ones are compared with.
_MOST_NATURAL = 500


def write_comparison(
    clip: ClipModel,
    annotations: Annotations,
    orders: Sequence[Order],
    folder: Path,
    **resampling: Any,
) -> None:
    """Writes ``effectiveness.csv``, distances of made to natural images, and ``features.parquet``.

    Args:
        clip: gives the features.
        annotations: of the natural images, of which the first 500 are taken.
        orders: of the made ones, whose sets are their criteria, or what ``split`` says.
        folder: of the made images and of the files.
        resampling: see :func:`distances_to_natural`; images of one pair are resampled together.
    """
    natural = [annotations.root / file for file in annotations.images["file"]][:_MOST_NATURAL]
    features = {NATURAL: image_features(clip, natural)}
    of_orders = image_features(clip, [file_of(order, folder) for order in orders])
    names = np.array([o.meta.get("split", o.composition.criterion) for o in orders])
    pairs = np.array([str(order.composition.pair.key) for order in orders])
    sets = dict.fromkeys(names.tolist())
    features |= {name: of_orders[names == name] for name in sets}
    together = {name: pairs[names == name] for name in sets}
    results = distances_to_natural(features, together, **resampling)
    write_csv(results, folder / "effectiveness.csv")
    tables = [pd.DataFrame(rows).assign(dataset=name) for name, rows in features.items()]
    write_table(pd.concat(tables).rename(columns=str), folder / "features.parquet")


def distances_to_natural(
    features: Mapping[str, NDArray[np.float32]],
    by: Mapping[str, ArrayLike] | None = None,
    **resampling: Any,
) -> pd.DataFrame:
    """The distance of every set to the natural images.

    ``distance``: mean over the images of ``1 - max cos`` to a natural one; for natural images to
    another one, with a bootstrap interval over the images of the set. ``ratio``: distance over the
    natural images' own; 1 = as near as they to each other.

    Args:
        features: normalised, ``[n, D]`` by name of the set, :data:`NATURAL` among them.
        by: by name of the set, ``[n]``: images that are resampled together; missing = each.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.

    Returns:
        ``dataset, n, distance, ci_low, ci_high, ratio``.
    """
    natural = features[NATURAL]
    rows = []
    for name, values in features.items():
        cosines = values @ natural.T
        if name == NATURAL:
            np.fill_diagonal(cosines, -np.inf)
        nearest = 1 - cosines.max(axis=1)
        counts, units = np.column_stack([nearest, np.ones(len(nearest))]), (by or {}).get(name)
        results = clustered(counts, partial(shares, [""]), units, **resampling).estimates()[""]
        rows.append((name, len(values), float(nearest.mean()), results.low, results.high))
    table = pd.DataFrame(rows, columns=["dataset", "n", "distance", "ci_low", "ci_high"])
    reference = table.loc[table["dataset"] == NATURAL, "distance"].iloc[0]
    return table.assign(ratio=table["distance"] / reference if reference else np.nan)


def feature_clouds(
    features: Mapping[str, NDArray[np.float32]], distances: pd.DataFrame, footer: str
) -> Figure | None:
    """Sets of images along the two main directions of all; None with fewer than two sets.

    Args:
        features: ``[n, D]`` by name of the set; ``natural`` is grey.
        distances: of the sets to the natural images, for the legend, see
            :func:`distances_to_natural`.
        footer: text below.
    """
    if len(features) < 2 or NATURAL not in features:
        return None
    clouds, shares = components_of(features)
    labels = {name: f"{name.replace('_', '-')} (n={len(clouds[name])})" for name in clouds}
    for row in distances.to_dict("records"):
        has_interval = pd.notna(row["ci_low"])
        ends = f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]" if has_interval else ""
        labels[row["dataset"]] += f", distance {row['distance']:.3f}{ends}"
    words = component_labels(shares)
    figure, (axes,) = panels([""], footer, height=3.2, extra=0.4, labels=words)
    draw_clouds(axes, clouds, styles_of(list(clouds), NATURAL), labels, units=False)
    add_legend(figure, [axes])
    return figure
