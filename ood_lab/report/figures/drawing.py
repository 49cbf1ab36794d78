"""Figures drawn and written: here, or side by side in several processes."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ood_lab.report.figures.style import rc
from ood_lab.report.optional import optional
from ood_lab.report.page import FigureFile


class PlannedFigure(NamedTuple):
    """A figure that can be drawn.

    Attributes:
        name: of its files.
        title: above it on the page.
        caption: below it on the page.
        draw: returns the figure, or None where its inputs show nothing.
        travels: whether ``draw`` and its inputs are small enough to be sent to another process.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure | None]
    travels: bool = True

    def file(self, folder: Path) -> FigureFile:
        """Where it lies once it is written."""
        return _file(folder, self.name, self.title, self.caption)

    def write(self, folder: Path) -> bool:
        """Draws it and writes both files to ``folder``, which exists; False where it is none."""
        with rc():
            figure = self.draw()
            if figure is not None:
                save(figure, *self.file(folder)[:2])
        return figure is not None


def save(figure: Figure, png: Path, svg: Path) -> None:
    """Writes both formats, drawing once each (``savefig`` draws and lays out twice a format)."""
    FigureCanvasAgg(figure).print_png(png)
    figure.set_layout_engine("none")  # keep the layout of the first
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})


def _file(folder: Path, name: str, title: str, caption: str) -> FigureFile:
    return FigureFile(folder / f"{name}.png", folder / f"{name}.svg", title, caption)


def write_figure(folder: Path, name: str, title: str, caption: str, figure: Figure) -> FigureFile:
    """Writes ``<name>.png`` and ``<name>.svg`` to ``folder``, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    file = _file(folder, name, title, caption)
    save(figure, file.png, file.svg)
    return file


def write_all(folder: Path, plan: Sequence[PlannedFigure], helpers: int = 0) -> list[FigureFile]:
    """Writes the figures of a plan; one that cannot be drawn is left out with a warning.

    Helpers begin with the first figures; this process draws from the end of the plan what no
    helper has begun, and whatever is lost with a helper that dies.

    Args:
        folder: of the files; exists.
        plan: all figures, in reading order.
        helpers: processes beside this one. The files are the same with any number.
    """
    written = {}
    pool = None
    if helpers:
        # Now and once: figures share their inputs, which change (caches fill) as soon as one is
        # drawn, while a pool would read them in a thread of its own.
        travelling = pickle.dumps([figure for figure in plan if figure.travels])
        pool = ProcessPoolExecutor(helpers, get_context("spawn"), _begin, (travelling,))
    try:
        sent = _sent(plan, folder, pool) if pool else {}
        for figure in reversed(plan):
            if figure.name not in sent or sent[figure.name].cancel():
                written[figure.name] = _tried(figure.name, partial(figure.write, folder))
        for figure in plan:
            if figure.name not in written:
                found = partial(_received, sent[figure.name], figure, folder)
                written[figure.name] = _tried(figure.name, found)
    finally:
        if pool:
            pool.shutdown(wait=False, cancel_futures=True)
    return [figure.file(folder) for figure in plan if written[figure.name]]


def _tried(name: str, write: Callable[[], bool]) -> bool:
    with optional(f"figure {name}"):
        return write()
    return False


def _sent(
    plan: Sequence[PlannedFigure], folder: Path, pool: ProcessPoolExecutor
) -> dict[str, Future[bool]]:
    sent = {}
    with suppress(BrokenProcessPool, OSError):  # no helper can start: draw here
        for figure in plan:
            if figure.travels:
                sent[figure.name] = pool.submit(_write, figure.name, folder)
    return sent


def _received(future: Future[bool], figure: PlannedFigure, folder: Path) -> bool:
    try:
        return future.result()
    except BrokenProcessPool:  # killed, or never started: there was no memory, say
        return figure.write(folder)


#: In a helper: the figures that travelled there.
_arrived: dict[str, PlannedFigure] = {}


def _begin(travelling: bytes) -> None:
    # Ctrl-C ends the process that waits for a helper; the helper follows without a word.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _arrived.update((figure.name, figure) for figure in pickle.loads(travelling))


def _write(name: str, folder: Path) -> bool:
    return _arrived[name].write(folder)
