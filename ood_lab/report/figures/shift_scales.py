"""A second scale of distances: units of ID data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

#: What the units of a ruler are called, by its metric.
UNITS = {
    "held_out_class_units": "1 = one of your own classes, held out",
    "corruption_severity": "severity of corruption of your test images",
}
#: Ticks are no nearer than this share of the axis.
_ROOM = 0.035


def draw_ruler(axes: Axes, ruler: Mapping[str, Any], *, upright: bool, place: float = 1) -> None:
    """Draws the marks of a ruler as a second axis; nothing where there is no ruler.

    Args:
        axes: whose x axis, or y axis where ``upright``, has its limits and holds distances.
        ruler: ``metric``, ``reason`` (why there is none) and ``marks``, the distances at 0, 1, ...;
            two of them define an even, open scale.
        upright: the distances run upwards.
        place: of the axis, 1 = at the edge.
    """
    if ruler["reason"]:
        return
    marks = np.array(ruler["marks"])
    other: Any = axes.secondary_yaxis if upright else axes.secondary_xaxis
    if len(marks) == 2:
        start, unit = marks[0], marks[1] - marks[0]
        scale = other(place, functions=(lambda d: (d - start) / unit, lambda u: start + u * unit))
    else:
        low, high = axes.get_ylim() if upright else axes.get_xlim()
        room = _ROOM * (high - low)
        scale, shown = other(place), [len(marks) - 1]
        for number in range(len(marks) - 2, 0, -1):
            if marks[shown[0]] - marks[number] >= room <= marks[number] - marks[0]:
                shown.insert(0, number)
        shown.insert(0, 0)
        scale.set_ticks(marks[shown], labels=[str(number) for number in shown])
    scale.tick_params(labelsize=6, length=2)
    (scale.set_ylabel if upright else scale.set_xlabel)(UNITS[ruler["metric"]], fontsize=7)
