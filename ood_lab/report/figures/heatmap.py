"""Heat maps: cells with their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ood_lab.axes import LEVELS
from ood_lab.report.figures.layout import panels
from ood_lab.report.figures.style import text_on
from ood_lab.report.protocol import MISSING

_EMPTY = "#EFEFEF"


class Colours(NamedTuple):
    """How values become colours."""

    map: Colormap
    range: Normalize

    def bar(self, figure: Figure, axes: Any, label: str, **options: Any) -> None:
        """The scale beside axes."""
        bar = figure.colorbar(ScalarMappable(self.range, self.map), ax=axes, label=label, **options)
        bar.outline.set_visible(False)


def shades(low: float, high: float, name: str = "cividis", logarithmic: bool = False) -> Colours:
    """Colours from ``low`` to ``high``."""
    return Colours(matplotlib.colormaps[name], (LogNorm if logarithmic else Normalize)(low, high))


def draw_cells(
    axes: Axes,
    values: ArrayLike,
    colours: Colours,
    names: tuple[Sequence[str], Sequence[str]],
    texts: Sequence[Sequence[str]] | None = None,
    notes: Sequence[Sequence[str]] | None = None,
) -> None:
    """A matrix of coloured cells, the first row at the top.

    Args:
        axes: where to.
        values: ``[R, C]``; cells with NaN are grey.
        colours: of the others.
        names: of the rows and of the columns.
        texts: in the cells.
        notes: small, below the texts.
    """
    cells = np.asarray(values, float)
    rows, columns = names
    axes.pcolormesh(cells, cmap=colours.map, norm=colours.range, edgecolor="white", lw=0.8)
    axes.set_facecolor(_EMPTY)
    for (row, column), value in np.ndenumerate(cells):
        ink = "black" if np.isnan(value) else text_on(colours.map(colours.range(value))[:3])
        note = notes[row][column] if notes else ""
        text = texts[row][column] if texts else ""
        for words, down, size in ((text, 0.37 if note else 0.5, 6.5), (note, 0.79, 5.0)):
            if words:
                where: Any = {"ha": "center", "va": "center", "fontsize": size, "color": ink}
                shown = axes.text(column + 0.5, row + down, words, **where)
                shown.set_in_layout(False)  # inside the panel anyway; saves half of the time
    axes.set_xticks(np.arange(len(columns)) + 0.5, list(columns))
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def level_cells(
    rows: pd.DataFrame,
    metrics: Mapping[str, str],
    split: str,
    footer: str,
    n: str = "n",
) -> Figure | None:
    """The grid of semantic × covariate levels, a panel per metric; None without two of each.

    Args:
        rows: ``split, semantic_level, covariate_level, metric, value`` (shares) and the counts.
        metrics: key in the rows → title.
        split: the one to show.
        footer: what stands below.
        n: column of the counts.
    """
    chosen = rows[(rows["split"] == split) & rows[list(LEVELS)].notna().all(axis=1)]
    if min((chosen[name].nunique() for name in LEVELS), default=0) < 2:
        return None
    titles = [f"{title} (%)" for title in metrics.values()]
    maps = {t: chosen[chosen["metric"] == key] for t, key in zip(titles, metrics, strict=True)}
    return cell_panels(maps, n, footer, shades(0, 100))


def cell_panels(
    maps: Mapping[str, pd.DataFrame],
    n: str,
    footer: str,
    colours: Colours,
    scale: str = "",
    counted: str = "",
) -> Figure | None:
    """Grids of semantic × covariate levels in percent; None without a value.

    Args:
        maps: title of a panel → ``semantic_level, covariate_level, value`` (shares), and counts.
        n: column of the counts.
        footer: what stands below.
        colours: of percent.
        scale: words at the scale of the colours; "" leaves it out.
        counted: title of a panel of the counts, which are the same in all maps; "" writes them
            into the cells.
    """
    first, *_ = maps = {t: rows[rows[list(LEVELS)].notna().all(axis=1)] for t, rows in maps.items()}
    every = pd.concat(maps.values())
    semantic, covariate = (sorted(every[name].unique()) for name in LEVELS)
    if every["value"].isna().all():
        return None
    columns = 3 if len(covariate) <= 6 else 2 if len(covariate) <= 10 else 1
    figure, grid = panels(
        [*maps, *([counted] if counted else [])],
        footer,
        columns=columns,
        height=0.29 * len(semantic) + 0.35,
        extra=1.1 if scale else 0.5,
        labels=("covariate level", "semantic level"),
    )
    names = [f"{level:g}" for level in semantic], [f"{level:g}" for level in covariate]

    def table(rows: pd.DataFrame, column: str) -> pd.DataFrame:
        wide = rows.pivot(index=LEVELS[0], columns=LEVELS[1], values=column)
        return wide.reindex(index=semantic, columns=covariate)

    for axes, rows in zip(grid, maps.values(), strict=False):
        shares = 100 * table(rows, "value").to_numpy(float)
        texts = [[MISSING if np.isnan(cell) else f"{cell:.0f}" for cell in row] for row in shares]
        notes = None if counted else _counts(table(rows, n), "n={:,}")
        draw_cells(axes, shares, colours, names, texts, notes)
    if counted:
        # The same for every panel: said once, it is easier to read and twice as fast to draw.
        counts = table(maps[first], n)
        empty = np.full(counts.shape, np.nan)
        draw_cells(grid[-1], empty, colours, names, _counts(counts, "{:,}"))
    for place, axes in enumerate(grid):
        axes.tick_params(labelleft=place % columns == 0)
    if scale:
        where: Any = {"location": "top", "aspect": 50, "shrink": 0.5, "pad": 0.01}
        colours.bar(figure, grid, scale, extend="min", **where)
    return figure


def _counts(table: pd.DataFrame, words: str) -> list[list[str]]:
    return [["" if pd.isna(n) else words.format(int(n)) for n in row] for row in table.to_numpy()]
