"""Painters of the places: pale colours, so that objects stand out."""

from __future__ import annotations

import numpy as np

from ood_lab.builtin.scenes.drawings.canvas import Canvas, Colour

_SKY_HIGH, _SKY_LOW = (0.45, 0.68, 0.93), (0.80, 0.90, 0.97)


def _steps(start: float, stop: float, step: float) -> list[float]:
    return [float(value) for value in np.arange(start, stop, step)]


def _window(canvas: Canvas, left: float, top: float, right: float, bottom: float) -> None:
    canvas.rect(left - 0.02, top - 0.02, right + 0.02, bottom + 0.02, (0.95, 0.95, 0.93))
    canvas.rect(left, top, right, bottom, _SKY_LOW)
    middle = (left + right) / 2
    canvas.rect(middle - 0.01, top, middle + 0.01, bottom, (0.95, 0.95, 0.93))


def _sky(canvas: Canvas, horizon: float) -> None:
    canvas.fade(0.0, horizon, _SKY_HIGH, _SKY_LOW)


def _hills(canvas: Canvas, base: float, height: float, waves: float, colour: Colour) -> None:
    """A wavy silhouette above ``base``."""
    phase = canvas.rng.uniform(0.0, 6.0)
    crest = base - height * (0.55 + 0.45 * np.sin(waves * canvas.x + phase))
    canvas.where((canvas.y > crest) & (canvas.y < base), colour)


def kitchen(canvas: Canvas) -> None:
    """Tiled wall, counter with cupboards, floor."""
    canvas.band(0.0, 0.56, (0.86, 0.92, 0.88))
    canvas.lines(_steps(0.1, 0.56, 0.11), 0.01, 0.92)
    canvas.posts(_steps(0.03, 1.0, 0.13), 0.01, 0.0, 0.56, 0.92)
    canvas.band(0.56, 0.64, (0.66, 0.60, 0.56))
    canvas.band(0.64, 0.86, (0.93, 0.88, 0.76))
    canvas.posts(_steps(0.0, 1.0, 0.25), 0.012, 0.64, 0.86, 0.72)
    for left in _steps(0.19, 1.0, 0.25):
        canvas.rect(left, 0.70, left + 0.02, 0.78, (0.5, 0.45, 0.4))
    canvas.band(0.86, 1.0, (0.74, 0.72, 0.70))
    _window(canvas, 0.62, 0.08, 0.9, 0.34)


def living_room(canvas: Canvas) -> None:
    """Warm wall with a picture, a sofa, a low table, boards."""
    canvas.band(0.0, 0.66, (0.95, 0.87, 0.72))
    canvas.band(0.66, 1.0, (0.70, 0.52, 0.36))
    canvas.lines(_steps(0.7, 1.0, 0.06), 0.01, 0.86)
    canvas.rect(0.1, 0.1, 0.32, 0.28, (0.45, 0.33, 0.22))
    canvas.rect(0.12, 0.12, 0.30, 0.26, (0.80, 0.86, 0.80))
    canvas.rect(0.02, 0.46, 0.46, 0.62, (0.56, 0.60, 0.70))
    canvas.rect(0.0, 0.56, 0.5, 0.72, (0.62, 0.66, 0.76))
    canvas.rect(0.0, 0.5, 0.06, 0.72, (0.50, 0.54, 0.64))
    canvas.rect(0.56, 0.58, 0.99, 0.62, (0.42, 0.30, 0.22))
    canvas.rect(0.60, 0.62, 0.64, 0.76, (0.42, 0.30, 0.22))
    canvas.rect(0.91, 0.62, 0.95, 0.76, (0.42, 0.30, 0.22))


def bedroom(canvas: Canvas) -> None:
    """Lilac wall, a bed with a pillow, a night table, carpet."""
    canvas.band(0.0, 0.74, (0.86, 0.82, 0.92))
    canvas.band(0.74, 1.0, (0.80, 0.72, 0.74), 0.15)
    canvas.rect(0.0, 0.42, 0.05, 0.84, (0.55, 0.40, 0.30))
    canvas.rect(0.05, 0.60, 0.66, 0.80, (0.72, 0.80, 0.94))
    canvas.rect(0.05, 0.80, 0.66, 0.84, (0.55, 0.40, 0.30))
    canvas.rect(0.06, 0.53, 0.24, 0.62, (0.97, 0.97, 0.97))
    canvas.rect(0.74, 0.60, 0.98, 0.84, (0.62, 0.46, 0.34))
    canvas.rect(0.77, 0.66, 0.95, 0.72, (0.52, 0.38, 0.28))
    _window(canvas, 0.4, 0.08, 0.66, 0.34)


def bathroom(canvas: Canvas) -> None:
    """Blue tiles, a bath tub, a shelf."""
    canvas.band(0.0, 0.82, (0.78, 0.88, 0.94))
    canvas.lines(_steps(0.06, 0.82, 0.09), 0.01, 1.06)
    canvas.posts(_steps(0.04, 1.0, 0.09), 0.01, 0.0, 0.82, 1.06)
    canvas.band(0.82, 1.0, (0.60, 0.68, 0.74))
    canvas.rect(0.04, 0.58, 0.64, 0.62, (1.0, 1.0, 1.0))
    canvas.rect(0.07, 0.62, 0.61, 0.84, (0.93, 0.95, 0.96))
    canvas.rect(0.68, 0.44, 0.98, 0.47, (0.97, 0.97, 0.97))
    canvas.rect(0.72, 0.06, 0.94, 0.28, (0.90, 0.95, 0.97))


def classroom(canvas: Canvas) -> None:
    """Pale wall, a blackboard, a long desk."""
    canvas.band(0.0, 0.74, (0.94, 0.92, 0.84))
    canvas.band(0.74, 1.0, (0.72, 0.66, 0.58))
    canvas.rect(0.10, 0.08, 0.72, 0.46, (0.60, 0.44, 0.30))
    canvas.rect(0.13, 0.11, 0.69, 0.43, (0.20, 0.34, 0.28))
    for top in (0.18, 0.27):
        canvas.rect(0.2, top, 0.2 + canvas.rng.uniform(0.2, 0.4), top + 0.02, (0.62, 0.70, 0.66))
    canvas.rect(0.04, 0.60, 0.96, 0.65, (0.82, 0.66, 0.44))
    canvas.rect(0.10, 0.65, 0.14, 0.86, (0.55, 0.55, 0.58))
    canvas.rect(0.86, 0.65, 0.90, 0.86, (0.55, 0.55, 0.58))


def workshop(canvas: Canvas) -> None:
    """Board wall with a rack, a heavy bench, concrete floor."""
    canvas.band(0.0, 0.78, (0.72, 0.62, 0.50), 0.1)
    canvas.posts(_steps(0.0, 1.0, 0.12), 0.012, 0.0, 0.78, 0.84)
    canvas.band(0.78, 1.0, (0.64, 0.64, 0.63), 0.15)
    canvas.rect(0.08, 0.34, 0.92, 0.37, (0.42, 0.32, 0.24))
    canvas.rect(0.0, 0.60, 1.0, 0.67, (0.56, 0.42, 0.28))
    canvas.rect(0.06, 0.67, 0.14, 0.88, (0.46, 0.34, 0.22))
    canvas.rect(0.84, 0.67, 0.92, 0.88, (0.46, 0.34, 0.22))


def station(canvas: Canvas) -> None:
    """A grey hall with an arched window, a train behind the platform."""
    canvas.band(0.0, 0.68, (0.80, 0.81, 0.83))
    x, y = canvas.x - 0.5, canvas.y
    arch = (x * x / 0.12 + (y - 0.34) ** 2 / 0.08 < 1.0) & (y < 0.34)
    canvas.where(arch, (0.90, 0.95, 0.98))
    canvas.posts([0.3, 0.5, 0.7], 0.012, 0.06, 0.34, 0.8)
    canvas.rect(0.0, 0.42, 1.0, 0.64, (0.44, 0.56, 0.60))
    for left in _steps(0.06, 1.0, 0.19):
        canvas.rect(left, 0.46, left + 0.12, 0.54, (0.84, 0.90, 0.92))
    canvas.band(0.68, 0.72, (0.88, 0.82, 0.50))
    canvas.band(0.72, 1.0, (0.70, 0.69, 0.68), 0.1)


def street(canvas: Canvas) -> None:
    """Sky, a row of fronts, pavement, asphalt with a broken line."""
    _sky(canvas, 0.62)
    left = 0.0
    while left < 1.0:
        width, top = canvas.rng.uniform(0.16, 0.3), canvas.rng.uniform(0.16, 0.34)
        shade = canvas.rng.uniform(0.66, 0.84)
        right = min(left + width, 1.0)
        canvas.rect(left, top, right, 0.62, (shade, shade * 0.94, shade * 0.9))
        for x in _steps(left + 0.03, right - 0.05, 0.08):
            for y in _steps(top + 0.04, 0.54, 0.1):
                canvas.rect(x, y, x + 0.035, y + 0.05, (0.56, 0.62, 0.68))
        left = right
    canvas.band(0.62, 0.72, (0.76, 0.75, 0.73))
    canvas.band(0.72, 1.0, (0.46, 0.47, 0.49), 0.12)
    for x in _steps(0.04, 1.0, 0.24):
        canvas.rect(x, 0.85, x + 0.12, 0.87, (0.92, 0.92, 0.88))


def park(canvas: Canvas) -> None:
    """Sky, distant trees, a lawn with a path."""
    _sky(canvas, 0.5)
    _hills(canvas, 0.5, 0.14, 24.0, (0.44, 0.62, 0.42))
    canvas.band(0.5, 1.0, (0.60, 0.78, 0.42), 0.2)
    path = np.abs(canvas.x - 0.5 - 0.3 * (canvas.y - 0.75)) < 0.06 + 0.5 * (canvas.y - 0.5)
    canvas.where(path & (canvas.y > 0.5), (0.86, 0.80, 0.64))


def garden(canvas: Canvas) -> None:
    """A hedge, a white fence, a bed of earth, a lawn."""
    _sky(canvas, 0.3)
    canvas.band(0.26, 0.60, (0.36, 0.56, 0.34), 0.35)
    canvas.rect(0.0, 0.42, 1.0, 0.45, (0.96, 0.96, 0.94))
    canvas.rect(0.0, 0.53, 1.0, 0.56, (0.96, 0.96, 0.94))
    for left in _steps(0.01, 1.0, 0.09):
        canvas.rect(left, 0.36, left + 0.045, 0.60, (0.97, 0.97, 0.95))
    canvas.band(0.60, 0.70, (0.52, 0.40, 0.30), 0.3)
    canvas.band(0.70, 1.0, (0.56, 0.76, 0.40), 0.2)


def forest(canvas: Canvas) -> None:
    """Dusky green with trunks, a brown floor."""
    canvas.band(0.0, 0.62, (0.42, 0.54, 0.40), 0.5)
    for left in _steps(canvas.rng.uniform(0.0, 0.1), 1.0, 0.15):
        wide = canvas.rng.uniform(0.03, 0.07)
        canvas.rect(left, 0.0, left + wide, canvas.rng.uniform(0.6, 0.66), (0.42, 0.34, 0.27))
    canvas.band(0.62, 1.0, (0.60, 0.52, 0.38), 0.4)


def farm(canvas: Canvas) -> None:
    """Sky, rolling fields, rows of wheat."""
    _sky(canvas, 0.56)
    _hills(canvas, 0.56, 0.2, 5.0, (0.66, 0.76, 0.46))
    canvas.band(0.56, 1.0, (0.90, 0.82, 0.50), 0.15)
    canvas.lines(_steps(0.60, 1.0, 0.055), 0.02, 0.88)


def beach(canvas: Canvas) -> None:
    """Sky, a strip of sea, sand."""
    _sky(canvas, 0.42)
    canvas.fade(0.42, 0.62, (0.26, 0.56, 0.74), (0.50, 0.80, 0.86))
    canvas.band(0.60, 0.63, (0.95, 0.97, 0.97))
    canvas.band(0.63, 1.0, (0.94, 0.87, 0.68), 0.12)


def harbour(canvas: Canvas) -> None:
    """Sky, a far shore, open water, a quay."""
    _sky(canvas, 0.36)
    _hills(canvas, 0.36, 0.1, 9.0, (0.60, 0.70, 0.72))
    canvas.band(0.36, 0.82, (0.34, 0.58, 0.72), 0.25)
    canvas.lines(_steps(0.42, 0.82, 0.07), 0.012, 1.12)
    canvas.band(0.82, 1.0, (0.72, 0.70, 0.66), 0.1)
    canvas.lines([0.82], 0.015, 0.7)


def mountains(canvas: Canvas) -> None:
    """Snowy peaks above a stony meadow."""
    _sky(canvas, 0.6)
    x, y = canvas.x, canvas.y
    far, near = canvas.rng.uniform(0.2, 0.4), canvas.rng.uniform(0.62, 0.82)
    ridge = np.minimum(0.1 + 1.0 * np.abs(x - far), 0.18 + 1.1 * np.abs(x - near))
    canvas.where((y > ridge) & (y < 0.6), (0.58, 0.60, 0.66))
    canvas.where((y > ridge) & (y < 0.28 + 0.05 * np.sin(60.0 * x)), (0.96, 0.97, 0.99))
    canvas.band(0.6, 1.0, (0.68, 0.74, 0.56), 0.3)
