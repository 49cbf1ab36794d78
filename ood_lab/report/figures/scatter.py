"""Sets of images in a plane: faint points, their middle half, their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # loads what it is asked for when it is used: half a second
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from ood_lab.report.figures.layout import ID_COLOUR, LINES, Style, style
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import Names

_POINTS = 300  # drawn a set
_FITTED = 1000  # that a contour rests on
_GRID = 70
#: Sets above this number show their middle half and mean alone.
_MAX_CLOUDS = 8


def styles_of(names: Sequence[str], id_name: str) -> dict[str, Style]:
    """One style per set, the same in all figures of a page; ID is grey."""
    ood_names = [name for name in names if name != id_name]
    return {
        id_name: Style(ID_COLOUR, "-", "o"),
        # Lines differ from set to set, so that they are told apart in grey print, too.
        **{
            name: style(position)._replace(line=LINES[position % len(LINES)])
            for position, name in enumerate(ood_names)
        },
    }


def draw_clouds(
    axes: Axes,
    points: Mapping[str, Floats],
    styles: Mapping[str, Style],
    labels: Names | None = None,
    *,
    contours: bool = True,
    units: bool = True,
) -> None:
    """Draws sets of points: at most 300 of each, their middle half, their mean.

    Args:
        axes: where to.
        points: ``[n, 2]`` by name.
        styles: of every name.
        labels: in the legend, by name.
        contours: draw lines that hold half of the points, those where they are densest.
        units: False hides the scales of the axes, where they mean nothing.
    """
    if not units:
        axes.tick_params(labelbottom=False, labelleft=False, length=0)
        axes.grid(visible=False)
    rng = np.random.default_rng(0)
    shuffled = {name: rows[rng.permutation(len(rows))[:_FITTED]] for name, rows in points.items()}
    for name, rows in shuffled.items():
        look = styles[name]
        x, y = rows[:_POINTS].T
        if len(points) <= _MAX_CLOUDS:
            axes.scatter(
                x, y, s=5, marker=look.marker, color=look.color, lw=0, alpha=0.3, rasterized=True
            )
        if contours:
            _middle_half(axes, rows, look)
    for name, rows in points.items():  # above all points
        look = styles[name]
        x, y = rows.mean(axis=0)
        axes.plot(
            x,
            y,
            look.marker,
            color=look.color,
            markersize=7,
            markeredgecolor="white",
            markeredgewidth=0.8,
            label=labels[name] if labels else "",
            zorder=5,
        )


def _middle_half(axes: Axes, rows: Floats, look: Style) -> None:
    """The line of equal density inside which half of the points lie."""
    fitted = _fitted(np.asarray(rows, np.float64).tobytes()) if len(rows) >= 10 else None
    if fitted is None:
        return
    x, y, heights, level = fitted
    if level < heights.max():
        contour = axes.contour(
            x, y, heights, [level], colors=[look.color], linestyles=[look.line], linewidths=1.2
        )
        contour.set_path_effects([withStroke(linewidth=2.2, foreground="white")])


@lru_cache(maxsize=8)  # ID test stands in every panel
def _fitted(points: bytes) -> tuple[Floats, Floats, Floats, float] | None:
    """Density of ``[n, 2] float64`` on a grid, and its median at the points; None on one line."""
    rows = np.frombuffer(points).reshape(-1, 2)
    try:
        kernel = scipy.stats.gaussian_kde(rows.T)
    except np.linalg.LinAlgError:
        return None
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = 0.15 * (high - low)
    x, y = (np.linspace(a, b, _GRID) for a, b in zip(low - margin, high + margin, strict=True))
    heights = kernel(np.stack(np.meshgrid(x, y)).reshape(2, -1)).reshape(_GRID, _GRID)
    return x, y, heights, float(np.median(kernel(rows.T)))


def principal_components(features: Floats) -> tuple[Floats, Floats]:
    """Projection ``[N, 2]`` on the two main directions and their shares of variance ``[2]``."""
    centred = features - features.mean(axis=0)
    total = float((centred**2).sum())
    if total == 0 or min(centred.shape) < 3:
        padded = np.zeros((len(centred), 2))
        padded[:, : min(2, centred.shape[1])] = centred[:, :2]
        return padded, (padded**2).sum(axis=0) / (total or 1.0)
    left, singular, _ = scipy.sparse.linalg.svds(centred, k=2, random_state=0)
    left, singular = left[:, ::-1], singular[::-1]
    # A direction has no sign: make the figure the same every time.
    signs = np.sign(left[np.abs(left).argmax(axis=0), [0, 1]])
    return left * singular * signs, singular**2 / total


def components_of(sets: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Floats], Floats]:
    """Points ``[n, 2]`` of every set on the two main directions of all, and shares of variance."""
    values = [np.asarray(rows, np.float64) for rows in sets.values()]
    points, shares = principal_components(np.concatenate(values))
    parts = np.split(points, np.cumsum([len(rows) for rows in values])[:-1])
    return dict(zip(sets, parts, strict=True)), shares


def component_labels(shares: Sequence[float] | Floats) -> tuple[str, str]:
    """Names of the two axes, with their shares of the variance."""
    first, second = (f"PC {k} ({100 * shares[k - 1]:.0f}% of variance)" for k in (1, 2))
    return first, second
