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
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from numpy.typing import NDArray

from ood_lab.report.figures.layout import new_figure, text_on
from ood_lab.report.rendering.metric_definitions import MISSING
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import Names, Tables

#: Word, its colour and its size in points → the middles of its places.
Words = dict[tuple[str, str, float], list[tuple[float, float]]]
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
    faces: Floats,
    names: tuple[Sequence[str], Sequence[str]],
    texts: Sequence[Sequence[str]] | NDArray[np.object_] | None = None,
    notes: Sequence[Sequence[str]] | NDArray[np.object_] | None = None,
) -> None:
    """A matrix of coloured cells, the first row at the top.

    Args:
        axes: where to.
        faces: colours ``[R, C, 4]``, see :meth:`Colours.of`.
        names: of the rows and of the columns.
        texts: in the cells.
        notes: small, below the texts.
    """
    rows, columns = names
    axes.pcolormesh(faces, edgecolor="white", lw=0.8)
    words = defaultdict(list)
    for row, column in np.ndindex(faces.shape[:2]):
        note = "" if notes is None else str(notes[row][column])
        text = "" if texts is None else str(texts[row][column])
        for word, down, points in ((text, 0.37 if note else 0.5, 6.5), (note, 0.79, 5.0)):
            if word:
                words[word, text_on(faces[row, column]), points].append((column + 0.5, row + down))
    _write_words(axes, words)
    axes.set_xticks(np.arange(len(columns)) + 0.5, list(columns))
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def level_cells(
    rows: pd.DataFrame,
    metrics: Names,
    split: str,
    footer: str,
) -> Figure | None:
    """The grid of semantic × covariate levels, a panel per metric; None without two of each.

    Args:
        rows: ``split, semantic_level, covariate_level, metric, value`` (shares) and ``n``.
        metrics: key in the rows → title.
        split: the one to show.
        footer: text below the figure.
    """
    chosen = rows[(rows["split"] == split) & rows[list(LEVELS)].notna().all(axis=1)]
    if min(chosen[name].nunique() for name in LEVELS) < 2:
        return None
    maps = {f"{title} (%)": chosen[chosen["metric"] == key] for key, title in metrics.items()}
    return cell_panels(maps, "n", footer, shades(0, 100))


def cell_panels(
    maps: Tables, n: str, footer: str, colours: Colours, scale: str = "", counted: str = ""
) -> Figure | None:
    """Grids of semantic × covariate levels in percent; None without a value.

    Args:
        maps: title of a panel → ``semantic_level, covariate_level, value`` (shares), and counts, a
            row of each cell.
        n: column of the counts.
        footer: text below the figure.
        colours: of percent.
        scale: words at the scale of the colours; "" leaves it out.
        counted: title of a panel of the counts, which are the same in all maps; "" writes them
            into the cells.
    """
    first, *_ = maps
    cells = pd.concat(maps.values())
    semantic, covariate = (sorted(cells[name].unique()) for name in LEVELS)
    if cells["value"].isna().all():
        return None

    def table(rows: pd.DataFrame, column: str) -> pd.DataFrame:
        wide = rows.pivot(index=LEVELS[0], columns=LEVELS[1], values=column)
        return wide.reindex(index=semantic, columns=covariate)

    across, down = len(covariate), len(semantic)
    titles = [*maps, *([counted] if counted else [])]
    columns = min(len(titles), 3 if across <= 6 else 2 if across <= 10 else 1)
    lines = -(-len(titles) // columns)
    # All panels in one pair of axes, with a row above each for its title: axes for each would
    # take several times as long to draw.
    size = lines * (down + 1), columns * (across + 1) - 1
    faces = np.ones((*size, 4))
    texts, notes = np.full((2, *size), "", object)
    figure = new_figure(_HEIGHT * size[0] + (1.1 if scale else 0.7), footer)
    axes = figure.subplots()
    for place, title in enumerate(titles):
        top, left = place // columns * (down + 1) + 1, place % columns * (across + 1)
        inside = slice(top, top + down), slice(left, left + across)
        axes.text(left, top - 0.15, title, va="bottom", fontsize=7)
        rows = maps.get(title, maps[first])
        values = np.full((down, across), np.nan)
        words = counts = _counts(table(rows, n), "{:,}" if counted else "n={:,}")
        if title in maps:
            values = 100 * table(rows, "value").to_numpy(float)
            words = [[MISSING if np.isnan(v) else f"{v:.0f}" for v in row] for row in values]
        faces[inside], texts[inside] = colours.of(values), words
        notes[inside] = "" if counted else counts
    names = [["", *(f"{x:g}" for x in levels)] for levels in (semantic, covariate)]
    draw_cells(axes, faces, (names[0] * lines, (names[1] * columns)[1:]), texts, notes)
    axes.set(xlabel="covariate level", ylabel="semantic level")
    if scale:
        below = "min" if colours.range.vmin else "neither"  # no share is below 0
        colours.bar(
            figure, axes, scale, extend=below, location="top", aspect=50, shrink=0.5, pad=0.01
        )
    return figure


def _counts(table: pd.DataFrame, words: str) -> list[list[str]]:
    return [["" if pd.isna(n) else words.format(int(n)) for n in row] for row in table.to_numpy()]


def _write_words(axes: Axes, words: Words) -> None:
    """Writes every word as one mark at all its places: texts take ten times as long to draw.

    Their labels are the words after "_": no legend shows them.
    """
    for (word, ink, points), places in words.items():
        letters = TextPath((0, 0), word, size=points)
        across = letters.vertices[letters.codes != Path.CLOSEPOLY, 0]
        # Digits are 0.73 of their size high.
        middle = (across.min() + across.max()) / 2, 0.365 * points
        mark = Path(letters.vertices - middle, letters.codes)
        x, y = np.transpose(places)
        (line,) = axes.plot(
            x,
            y,
            ls="",
            clip_on=False,
            label=f"_{word}",
            marker=mark,
            ms=2 * np.abs(mark.vertices).max(),
            mew=0,
            c=ink,
        )
        line.set_in_layout(False)  # inside the cells anyway
