"""The feature space seen along its two main directions."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from scipy.sparse.linalg import svds

from ood_lab.report.figures.inputs import FigureInputs
from ood_lab.report.figures.style import COLOURS, ID_COLOUR, label_outer, panels, wrapped

_MAX_POINTS = 400


def principal_components(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Projection ``[N, 2]`` on the two main directions and their shares of variance ``[2]``."""
    centred = features - features.mean(axis=0)
    total = float((centred**2).sum())
    if total == 0 or min(centred.shape) < 3:
        padded = np.zeros((len(centred), 2))
        padded[:, : min(2, centred.shape[1])] = centred[:, :2]
        shares = (padded**2).sum(axis=0) / (total or 1.0)
        return padded, shares
    left, singular, _ = svds(centred, k=2, random_state=0)
    left, singular = left[:, ::-1], singular[::-1]
    # A direction has no sign: make the figure the same every time.
    signs = np.sign(left[np.abs(left).argmax(axis=0), [0, 1]])
    return left * singular * signs, singular**2 / total


def feature_scatter(inputs: FigureInputs) -> Figure | None:
    """One panel per OOD set over the ID test set; None without features of both."""
    sets = [s for s in inputs.view.sets if s in inputs.features]
    if not sets or inputs.id_dataset not in inputs.features:
        return None
    rng = np.random.default_rng(0)
    parts = []
    for name in [inputs.id_dataset, *sets]:
        rows = np.asarray(inputs.features[name], dtype=np.float64)
        parts.append(rows[np.sort(rng.permutation(len(rows))[:_MAX_POINTS])])
    points, shares = principal_components(np.concatenate(parts))
    id_points, *ood_points = np.split(points, np.cumsum([len(p) for p in parts])[:-1])
    footer = inputs.footer(f"Grey: ID test. Up to {_MAX_POINTS} images of each set.")
    columns = 2 if len(sets) in (2, 4) else 3
    height = 2.0 if len(sets) > 1 else 3.4
    figure, grid = panels(len(sets), columns, height, footer, 0.7, sharex=True, sharey=True)
    for axes, name, ood in zip(grid, sets, ood_points, strict=True):
        for cloud, colour, size in ((id_points, ID_COLOUR, 4), (ood, COLOURS[1], 5)):
            axes.scatter(
                cloud[:, 0], cloud[:, 1], s=size, color=colour, lw=0, alpha=0.7, rasterized=True
            )
        axes.set_title(wrapped(name, 26), fontsize=7, pad=3)
        axes.tick_params(labelbottom=False, labelleft=False, length=0)
        axes.grid(visible=False)
    first, second = (
        f"PC {i + 1} ({100 * share:.0f}% of variance)" for i, share in enumerate(shares)
    )
    label_outer(grid, columns, first, second)
    return figure
