"""Heat maps: cells with their numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ood_lab.report.figures.panel_sheet import Words, new_sheet, write_words
from ood_lab.report.figures.style import INK, text_on
from ood_lab.report.rendering.metric_definitions import MISSING
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import Names, Tables
from ood_lab.schema.shift_axes import LEVELS

_EMPTY = "#EFEFEF"
_HEIGHT = 0.29  # inches, of a cell of a grid of levels


class Colours(NamedTuple):
    """How values become colours."""

    map: Colormap
    range: Normalize

    def of(self, values: Floats) -> Floats:
        """Colours ``[..., 4]`` of values ``[...]``; NaN is grey."""
        return self.map.with_extremes(bad=_EMPTY)(self.range(np.ma.masked_invalid(values)))

    def bar(self, figure: Figure, axes: Any, label: str, **options: Any) -> None:
        """The scale next to axes."""
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
    rows, columns = names
    faces = colours.of(np.asarray(values, float))
    axes.pcolormesh(faces, edgecolor="white", lw=0.8)
    words: Words = defaultdict(list)
    _fill(words, faces, texts, notes)
    write_words(axes, words)
    axes.set_xticks(np.arange(len(columns)) + 0.5, list(columns))
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _fill(
    words: Words,
    faces: Floats,
    texts: Sequence[Sequence[str]] | None,
    notes: Sequence[Sequence[str]] | None,
    corner: tuple[float, float] = (0.0, 0.0),
    size: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Adds the words of a matrix of cells with its upper left corner and the size of a cell."""
    for row, column in np.ndindex(faces.shape[:2]):
        ink = text_on(faces[row, column])
        note = notes[row][column] if notes else ""
        text = texts[row][column] if texts else ""
        for word, down, points in ((text, 0.37 if note else 0.5, 6.5), (note, 0.79, 5.0)):
            if word:
                place = corner[0] + (column + 0.5) * size[0], corner[1] + (row + down) * size[1]
                words[word, ink, points].append(place)


def level_cells(
    rows: pd.DataFrame,
    metrics: Names,
    split: str,
    footer: str,
    n: str = "n",
) -> Figure | None:
    """The grid of semantic × covariate levels, a panel per metric; None without two of each.

    Args:
        rows: ``split, semantic_level, covariate_level, metric, value`` (shares) and the counts.
        metrics: key in the rows → title.
        split: the one to show.
        footer: text below the figure.
        n: column of the counts.
    """
    chosen = rows[(rows["split"] == split) & rows[list(LEVELS)].notna().all(axis=1)]
    if min((chosen[name].nunique() for name in LEVELS), default=0) < 2:
        return None
    titles = [f"{title} (%)" for title in metrics.values()]
    maps = {t: chosen[chosen["metric"] == key] for t, key in zip(titles, metrics, strict=True)}
    return cell_panels(maps, n, footer, shades(0, 100))


def cell_panels(
    maps: Tables, n: str, footer: str, colours: Colours, scale: str = "", counted: str = ""
) -> Figure | None:
    """Grids of semantic × covariate levels in percent; None without a value.

    Args:
        maps: title of a panel → ``semantic_level, covariate_level, value`` (shares), and counts.
        n: column of the counts.
        footer: text below the figure.
        colours: of percent.
        scale: words at the scale of the colours; "" leaves it out.
        counted: title of a panel of the counts, which are the same in all maps; "" writes them
            into the cells.
    """
    first, *_ = maps = {t: rows[rows[list(LEVELS)].notna().all(axis=1)] for t, rows in maps.items()}
    cells = pd.concat(maps.values())
    semantic, covariate = (sorted(cells[name].unique()) for name in LEVELS)
    if cells["value"].isna().all():
        return None

    def table(rows: pd.DataFrame, column: str) -> pd.DataFrame:
        wide = rows.pivot(index=LEVELS[0], columns=LEVELS[1], values=column)
        return wide.reindex(index=semantic, columns=covariate)

    grids = []
    for title, rows in maps.items():
        shares = 100 * table(rows, "value").to_numpy(float)
        texts = [[MISSING if np.isnan(cell) else f"{cell:.0f}" for cell in row] for row in shares]
        notes = None if counted else _counts(table(rows, n), "n={:,}")
        grids.append(_Grid(title, colours.of(shares), texts, notes))
    if counted:
        # The same for every panel: said once, it is easier to read.
        counts = table(maps[first], n)
        empty = np.full(counts.shape, np.nan)
        grids.append(_Grid(counted, colours.of(empty), _counts(counts, "{:,}")))
    names = [f"{level:g}" for level in semantic], [f"{level:g}" for level in covariate]
    figure, axes = _drawn(grids, names, footer, 0.75 if scale else 0.35)
    if scale:
        where: Any = {"location": "top", "aspect": 50, "shrink": 0.5, "pad": 0.01}
        below = "min" if colours.range.vmin else "neither"  # no share is below 0
        colours.bar(figure, axes, scale, extend=below, **where)
    return figure


class _Grid(NamedTuple):
    title: str
    faces: Floats
    texts: list[list[str]]
    notes: list[list[str]] | None = None


def _drawn(
    grids: Sequence[_Grid], names: tuple[Sequence[str], Sequence[str]], footer: str, extra: float
) -> tuple[Figure, Axes]:
    down, across = map(len, names)
    figure, axes, corners, width = new_sheet(
        [grid.title for grid in grids],
        footer,
        height=_HEIGHT * down,
        columns=3 if across <= 6 else 2 if across <= 10 else 1,
        extra=extra,
        labels=("covariate level", "semantic level"),
        side=0.25 + 0.06 * max(map(len, names[0])),
    )
    size = width / across, _HEIGHT
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    inside = size * (square + np.array([*np.ndindex(down, across)])[:, None, ::-1])
    words: Words = defaultdict(list)
    for grid, (left, top) in zip(grids, corners, strict=True):
        _fill(words, grid.faces, grid.texts, grid.notes, (left, top), size)
        for j, name in enumerate(names[1]):
            below = top + _HEIGHT * down + 0.09
            words[name, INK, 7.0].append((left + (j + 0.5) * size[0], below))
        if left == corners[0][0]:
            for i, name in enumerate(names[0]):
                beside = left - 0.06 - 0.03 * len(name)
                words[name, INK, 7.0].append((beside, top + (i + 0.5) * size[1]))
    cells = PolyCollection(
        [cell for corner in corners for cell in np.array(corner) + inside],
        facecolors=np.concatenate([grid.faces.reshape(-1, 4) for grid in grids]),
        edgecolors="white",
        lw=1.2,
    )
    cells.set_in_layout(False)
    axes.add_collection(cells)
    write_words(axes, words)
    return figure, axes


def _counts(table: pd.DataFrame, words: str) -> list[list[str]]:
    return [["" if pd.isna(n) else words.format(int(n)) for n in row] for row in table.to_numpy()]
