"""Densities and histograms of several sets on one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from ood_lab.report.figures.layout import Style, style
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import Names

_BINS = 256


def density(values: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian kernel density on a grid, by smoothing a histogram (Scott's bandwidth)."""
    counts, edges = np.histogram(values, bins=_BINS, range=(low, high))
    step = edges[1] - edges[0]
    bandwidth = max(values.std() * len(values) ** -0.2 / step, 1.5)
    kernel = np.exp(-0.5 * (np.arange(1 - _BINS // 2, _BINS // 2) / bandwidth) ** 2)
    smooth = np.convolve(counts, kernel / kernel.sum(), mode="same")
    return (edges[:-1] + edges[1:]) / 2, smooth / (len(values) * step)


def limits_of(
    values: Sequence[Floats], outside: float = 0.002, margin: float = 0.04
) -> tuple[float, float]:
    """Of an axis: all but a share of each set at both ends, with a margin."""
    ends = np.array([np.quantile(sample, (outside, 1 - outside)) for sample in values])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    room = margin * (high - low) or 0.1
    return low - room, high + room


def draw_densities(
    axes: Axes,
    values: Mapping[str, Floats],
    styles: Mapping[str, Style],
    limits: tuple[float, float],
    *,
    labels: Names | None = None,
    filled: str = "",
    upright: bool = False,
) -> None:
    """A line per set, without a scale of the density.

    Args:
        axes: where to.
        values: name → ``[n]``.
        styles: of every name.
        limits: of the axis of the values.
        labels: name → label in the legend; None without one.
        filled: the set that is an area.
        upright: the values run upwards.
    """
    for name, rows in values.items():
        x, y = density(rows, limits[0], limits[1])
        look, label = styles[name], labels[name] if labels else ""
        if name == filled:
            fill = axes.fill_betweenx if upright else axes.fill_between
            fill(x, y, color=look.color, alpha=0.6, lw=0, label=label)
        else:
            x, y = (y, x) if upright else (x, y)
            axes.plot(x, y, color=look.color, ls=look.line, lw=1.1, label=label)
    x_limits, y_limits = ((0, None), limits) if upright else (limits, (0, None))
    axes.set(xlim=x_limits, ylim=y_limits)
    (axes.set_xticks if upright else axes.set_yticks)([])
    axes.grid(visible=False, axis="x" if upright else "y")


def draw_histograms(axes: Axes, values: Mapping[str, Floats], edges: Floats) -> None:
    """Shares of the values of every name between the edges, as steps."""
    for place, (name, rows) in enumerate(values.items()):
        counts, _ = np.histogram(rows, edges)
        look = style(place)
        shares = counts / max(counts.sum(), 1)
        axes.stairs(shares, edges, color=look.color, ls=look.line, label=name)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
