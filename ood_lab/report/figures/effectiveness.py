"""Features of made images beside those of natural ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ood_lab.report.figures.clouds import draw_clouds, styles_of
from ood_lab.report.figures.features import principal_components
from ood_lab.report.figures.style import new_figure

_NATURAL = "natural"


def feature_clouds(features: Mapping[str, NDArray[np.float32]], footer: str) -> Figure | None:
    """Sets of images along the two main directions of all; None with fewer than two sets.

    Args:
        features: ``[n, D]`` by name of the set; ``natural`` is grey.
        footer: what stands below.
    """
    if len(features) < 2 or _NATURAL not in features:
        return None
    values = [np.asarray(each, np.float64) for each in features.values()]
    points, shares = principal_components(np.concatenate(values))
    parts = np.split(points, np.cumsum([len(each) for each in values])[:-1])
    clouds = dict(zip(features, parts, strict=True))
    figure = new_figure(3.6, footer)
    axes = figure.subplots()
    labels = {name: f"{name.replace('_', '-')} (n={len(clouds[name])})" for name in clouds}
    draw_clouds(axes, clouds, styles_of(list(clouds), _NATURAL), labels)
    axes.set_xlabel(f"PC 1 ({100 * shares[0]:.0f}% of variance)")
    axes.set_ylabel(f"PC 2 ({100 * shares[1]:.0f}% of variance)")
    axes.tick_params(labelbottom=False, labelleft=False, length=0)
    axes.grid(visible=False)
    figure.legend(loc="outside right upper")
    return figure
