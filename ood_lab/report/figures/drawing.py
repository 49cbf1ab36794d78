"""Figures drawn and written: here, or side by side in several processes."""

from __future__ import annotations

import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ood_lab.report.blocks import FigureFile, PlannedFigure
from ood_lab.report.figures.style import rc
from ood_lab.report.optional import optional


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


def write_all(folder: Path, plan: Sequence[PlannedFigure], helpers: int = 0) -> list[FigureFile]:
    """Writes the figures of a plan; one that cannot be drawn is left out with a warning.

    Helpers begin with the first figures, this process with the last, and each takes the next one
    when it is done; what is lost with a helper that dies is drawn here.

    Args:
        folder: of the files; made if missing.
        plan: all figures, in reading order.
        helpers: processes beside this one. The files are the same with any number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, bool] = {}
    staying = [figure for figure in plan if not figure.travels]
    left = deque(figure for figure in plan if figure.travels)

    def draw(figures: Iterable[PlannedFigure]) -> None:
        for figure in figures:
            written[figure.name] = _tried(figure.name, partial(write, figure, folder))

    with _helping(left, folder, written, helpers):
        draw(staying)
        draw(_taken(left.pop))
    draw(_taken(left.pop))
    return [figure.file(folder) for figure in plan if written[figure.name]]


def _taken(take: Callable[[], PlannedFigure]) -> Iterator[PlannedFigure]:
    """What others leave of a plan that several work on."""
    with suppress(IndexError):
        while True:
            yield take()


def _tried(name: str, write: Callable[[], bool]) -> bool:
    with optional(f"figure {name}"):
        return write()
    return False


@contextmanager
def _helping(
    left: deque[PlannedFigure], folder: Path, written: dict[str, bool], helpers: int
) -> Iterator[None]:
    """Has the first figures of ``left`` drawn by other processes meanwhile.

    Where a process dies or cannot start, its figure is put back.
    """
    if not helpers:
        yield
        return
    with TemporaryDirectory() as place, ThreadPoolExecutor(helpers) as threads:
        # Now and once: figures share their inputs, which change (caches fill) as soon as one is
        # drawn. In a file: this process would wait until a helper has read what it is sent.
        file = Path(place, "figures.pickle")
        file.write_bytes(pickle.dumps(list(left)))
        pool = ProcessPoolExecutor(helpers, get_context("spawn"), _begin, (file,))

        def follow_a_helper() -> None:
            # Ctrl-C ends the process that waits for a helper, which starts in this thread; the
            # helper follows without a word, however early it is.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            for figure in _taken(left.popleft):
                try:
                    drawn = pool.submit(_write, figure.name, folder)
                    lost = isinstance(drawn.exception(), BrokenProcessPool)
                except (BrokenProcessPool, OSError):
                    lost = True
                if lost:
                    left.append(figure)
                    return
                written[figure.name] = _tried(figure.name, drawn.result)

        try:
            followed = [threads.submit(follow_a_helper) for _ in range(helpers)]
            yield
            for thread in followed:
                thread.result()
        except BaseException:  # the user has stopped it: nobody takes another one
            left.clear()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


#: In a helper: the figures that travelled there.
_arrived: dict[str, PlannedFigure] = {}


def _begin(travelling: Path) -> None:
    figures: list[PlannedFigure] = pickle.loads(travelling.read_bytes())
    _arrived.update((figure.name, figure) for figure in figures)


def _write(name: str, folder: Path) -> bool:
    return write(_arrived[name], folder)
