"""Figures drawn and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from ood_lab.common.cpu_cores import on_all_cores
from ood_lab.report.rendering.blocks import FigureFile, PlannedFigure
from ood_lab.report.rendering.fonts import (
    RC,
    NumberedNames,
    add_fonts,
    fonts_with,
    missing_characters,
    rc,
)
from ood_lab.report.rendering.output_failures import optional


def write(figure: PlannedFigure, folder: Path) -> str | None:
    """Draws it and writes both files to ``folder``, which exists.

    Returns:
        What to add to the caption; None where it is no figure.
    """
    with rc():
        picture = figure.draw()
    if picture is None:
        return None
    if (missing := _missing(picture)) and (fonts := fonts_with(missing)):
        add_fonts(fonts)
        with rc():
            picture = figure.draw()
        if picture is None:
            return None
        missing = _missing(picture)
    for text in picture.findobj(Text):  # of a figure that was drawn with other settings
        text.set_fontfamily(RC["font.family"])
    with rc():
        legend = _number_names(picture, missing)
        save(picture, *figure.file(folder)[:2])
    return legend


def _missing(figure: Figure) -> set[str]:
    return missing_characters(figure, RC["font.family"])


def _number_names(figure: Figure, missing: set[str]) -> str:
    """Puts numbers in the place of names that cannot be drawn; returns their legend."""
    if not missing:
        return ""
    names = NumberedNames(missing)
    names.put(figure)
    return names.legend


def save(figure: Figure, png: Path, svg: Path) -> None:
    """Writes both formats, drawing once each (``savefig`` draws and lays out twice a format)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # Without alpha and with the least effort at compression that costs no size: twice as fast.
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    pixels.save(png, "png", dpi=(figure.dpi, figure.dpi), compress_level=3)
    figure.set_layout_engine("none")  # keep the layout of the first
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})


def write_all(folder: Path, plan: Sequence[PlannedFigure]) -> list[FigureFile]:
    """Writes the figures of a plan; one that cannot be drawn is skipped with a warning.

    They are drawn side by side, in as many processes as there are cores.

    Args:
        folder: of the files; made if missing.
        plan: all figures, in reading order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with on_all_cores(partial(write, folder=folder), plan) as attempts:
        for figure, written_now in zip(plan, attempts, strict=True):
            with optional(f"figure {figure.name}"):
                if (legend := written_now()) is not None:
                    captioned = replace(figure, caption=figure.caption + legend)
                    written.append(captioned.file(folder))
    return written
