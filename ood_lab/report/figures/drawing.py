"""Figures drawn and written."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ood_lab.cores import usable_cores
from ood_lab.report.blocks import FigureFile, PlannedFigure
from ood_lab.report.figures.style import rc
from ood_lab.report.optional import optional

_MOST_PROCESSES = 8
#: Folder and figures of a forked process.
_given: tuple[Path, Sequence[PlannedFigure]] = (Path(), ())


def write(figure: PlannedFigure, folder: Path) -> bool:
    """Draws it and writes both files to ``folder``, which exists; False where it is none."""
    with rc():
        drawn = figure.draw()
        if drawn is not None:
            save(drawn, *figure.file(folder)[:2])
    return drawn is not None


def save(figure: Figure, png: Path, svg: Path) -> None:
    """Writes both formats, drawing once each (``savefig`` draws and lays out twice a format)."""
    FigureCanvasAgg(figure).print_png(png)
    figure.set_layout_engine("none")  # keep the layout of the first
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})


def write_figure(folder: Path, name: str, title: str, caption: str, figure: Figure) -> FigureFile:
    """Writes ``<name>.png`` and ``<name>.svg`` to ``folder``, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    file = PlannedFigure(name, title, caption, lambda: figure).file(folder)
    save(figure, file.png, file.svg)
    return file


def write_all(folder: Path, plan: Sequence[PlannedFigure]) -> list[FigureFile]:
    """Writes the figures of a plan; one that cannot be drawn is left out with a warning.

    They are drawn side by side, in as many processes as there are cores.

    Args:
        folder: of the files; made if missing.
        plan: all figures, in reading order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with _drawing(folder, plan) as attempts:
        for figure, written_now in zip(plan, attempts, strict=True):
            with optional(f"figure {figure.name}"):
                if written_now():
                    written.append(figure.file(folder))
    return written


@contextmanager
def _drawing(folder: Path, plan: Sequence[PlannedFigure]) -> Iterator[list[Callable[[], bool]]]:
    """What waits for each figure, and says whether it was written.

    Processes are forked, as those of a DataLoader are: plans hold functions and tables, which no
    other kind could be given. Only on Linux, where that is safe.
    """
    processes = min(usable_cores(), len(plan), _MOST_PROCESSES)
    if processes < 2 or sys.platform != "linux" or multiprocessing.current_process().daemon:
        yield [partial(write, figure, folder) for figure in plan]
        return
    with ProcessPoolExecutor(
        processes, multiprocessing.get_context("fork"), _begin, (folder, plan)
    ) as pool:
        yield [pool.submit(_write, place).result for place in range(len(plan))]


def _begin(folder: Path, plan: Sequence[PlannedFigure]) -> None:
    """Tells a forked process what there is to draw; it shares the memory, nothing is copied."""
    global _given
    _given = folder, plan


def _write(place: int) -> bool:
    folder, plan = _given
    return write(plan[place], folder)
