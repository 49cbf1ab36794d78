"""Drawers of things found in a house."""

from __future__ import annotations

import numpy as np

from ood_lab.builtin.scenes.drawings.colours import OWN, OWN_DARK, OWN_LIGHT
from ood_lab.builtin.scenes.drawings.painted_parts import Part, both, minus, polygon
from ood_lab.builtin.vessels.drawings import archaic_vessels, artefacts
from ood_lab.builtin.vessels.drawings.figure import Proportions
from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    box,
    capsule,
    ellipse,
    half_plane,
    profile,
    ring,
    union,
)


def mug(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A mug with a handle and a dark opening."""
    figure = archaic_vessels.mug(u, v, p)
    wide, rim = 0.36 + 0.04 * p[0], 0.46 + 0.05 * p[1]
    handle = ring(u, v, (wide + 0.12, 0.0), (0.22, 0.28), 0.075)
    opening = ellipse(u, v, (0.0, rim - 0.04), (wide - 0.02, 0.1))
    return [Part(handle), Part(figure.belt_area), Part(opening, OWN_DARK)]


def bowl(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A bowl; ``full`` of rice."""
    figure = archaic_vessels.bowl(u, v, p)
    parts = [Part(figure.solid), Part(box(u, v, (0.0, 0.3), (0.62, 0.035)), OWN_LIGHT)]
    if state == "full":
        heap = both(ellipse(u, v, (0.0, 0.3), (0.54, 0.36)), 0.3 - v)
        parts.insert(0, Part(heap, "cream"))
    return parts


def bottle(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A bottle with a cap and a label."""
    figure = artefacts.bottle(u, v, p)
    label = both(figure.solid + 0.02, np.abs(v + 0.3) - 0.2)
    cap = both(figure.solid, 0.66 - v)
    return [Part(figure.solid), Part(label, "white"), Part(cap, "dark")]


def wine_glass(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A stemmed glass; ``full`` of red wine."""
    figure = artefacts.goblet(u, v, p)
    # A dark rim all round: clear glass before a pale wall would not be seen.
    parts = [Part(figure.solid - 0.02, "grey"), Part(figure.belt_area + 0.05, "glass")]
    if state == "full":
        parts.append(Part(both(figure.belt_area + 0.06, v - 0.5), "wine"))
    return parts


def apple(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """An apple with stalk and leaf; ``bitten`` on the right."""
    wide = 0.42 + 0.03 * p[0]
    fruit = ellipse(np.abs(u), v, (0.24, -0.08), (wide, 0.56))
    stalk = capsule(u, v, (0.0, 0.34), (0.08 * p[1], 0.7), 0.05)
    leaf = ellipse(u - v * 0.5, v, (-0.02, 0.58), (0.24, 0.11))
    if state == "bitten":
        bite = ellipse(u, v, (0.72, 0.02), (0.36, 0.36))
        core = both(fruit, bite - 0.1)
        return [
            Part(minus(fruit, bite)),
            Part(minus(core, bite), "cream"),
            Part(stalk, "dark"),
            Part(leaf, "leaf"),
        ]
    return [Part(fruit), Part(stalk, "dark"), Part(leaf, "leaf")]


def lamp(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A table lamp; ``lit``: a bright shade with rays."""
    figure = artefacts.lamp(u, v, p)
    if state != "lit":
        return [Part(figure.solid, "dark"), Part(figure.belt_area, "grey")]
    rays = [capsule(u, v, (x, 0.78), (1.25 * x, 0.96), 0.04) for x in (-0.5, -0.17, 0.17, 0.5)]
    return [
        Part(figure.solid, "dark"),
        Part(figure.belt_area, "glow"),
        Part(union(*rays), "glow"),
    ]


def chair(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A chair seen from the side."""
    back = capsule(u, v, (-0.42 - 0.04 * p[0], 0.8), (-0.36, 0.0), 0.09)
    seat = box(u, v, (0.04, -0.04), (0.46, 0.1))
    legs = [capsule(u, v, (x, -0.06), (x * 1.12, -0.78), 0.06) for x in (-0.36, 0.42)]
    return [Part(union(*legs), OWN_DARK), Part(union(back, seat))]


def stool(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A stool."""
    figure = artefacts.stool(u, v, p)
    return [Part(figure.solid, OWN_DARK), Part(figure.belt_area)]


def clock(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A round clock with two hands."""
    case = ellipse(u, v, (0.0, 0.0), (0.8, 0.8))
    face = ellipse(u, v, (0.0, 0.0), (0.62, 0.62))
    angle = np.pi * p[0]
    long = (0.5 * float(np.sin(angle)), 0.5 * float(np.cos(angle)))
    short = (0.34 * float(np.sin(angle + 2.0)), 0.34 * float(np.cos(angle + 2.0)))
    hands = union(capsule(u, v, (0.0, 0.0), long, 0.06), capsule(u, v, (0.0, 0.0), short, 0.075))
    return [Part(case), Part(face, "white"), Part(hands, "dark")]


def book(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A book: ``open``, with two white pages, or ``closed``, standing."""
    if state == "open":
        side = np.abs(u)
        cover = polygon(side, v, (-0.02, -0.52), (0.84, -0.32), (0.84, 0.4), (-0.02, 0.2))
        page = polygon(side, v, (0.03, -0.4), (0.76, -0.22), (0.76, 0.44), (0.03, 0.26))
        lines = both(np.abs(np.mod(v - 0.24 * side, 0.2) - 0.1) - 0.028, page + 0.1)
        return [Part(cover), Part(page, "white"), Part(lines, "grey")]
    wide = 0.5 + 0.04 * p[0]
    block = box(u, v, (0.04, 0.0), (wide, 0.68))
    pages = both(box(u, v, (wide - 0.02, 0.0), (0.09, 0.6)), block - 0.02)
    spine = box(u, v, (0.08 - wide, 0.0), (0.07, 0.68))
    title = box(u, v, (0.08, 0.3), (0.26, 0.1))
    return [Part(block), Part(pages, "white"), Part(spine, OWN_DARK), Part(title, "cream")]


def candle(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A candle on a dish; ``lit``: with a flame."""
    top = 0.3 + 0.06 * p[0]
    dish = union(
        ellipse(u, v, (0.0, -0.7), (0.48, 0.1)), ring(u, v, (0.5, -0.64), (0.13, 0.13), 0.05)
    )
    stick = box(u, v, (0.0, (top - 0.68) / 2), (0.19, (top + 0.68) / 2))
    wick = capsule(u, v, (0.0, top), (0.0, top + 0.1), 0.035)
    parts = [Part(dish, "brass"), Part(stick), Part(wick, "dark")]
    if state == "lit":
        parts.append(Part(capsule(u, v, (0.0, top + 0.2), (0.0, top + 0.5), 0.15, 0.02), "flame"))
        parts.append(Part(capsule(u, v, (0.0, top + 0.18), (0.0, top + 0.3), 0.07, 0.02), "glow"))
    return parts


def television(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A television; ``on``: with a picture."""
    case = box(u, v, (0.0, 0.06), (0.86, 0.58))
    screen = box(u, v, (0.0, 0.08), (0.74, 0.44))
    stand = union(box(u, v, (0.0, -0.58), (0.08, 0.1)), box(u, v, (0.0, -0.66), (0.4, 0.06)))
    parts = [Part(union(case, stand), "dark"), Part(screen, "grey")]
    if state == "on":
        hill = both(screen, ellipse(u, v, (0.2 * p[0], -0.42), (0.8, 0.44)))
        sun = ellipse(u, v, (-0.4, 0.3), (0.14, 0.14))
        parts[1:] = [Part(screen, "window"), Part(hill, "leaf"), Part(sun, "glow")]
    return parts


def guitar(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """An upright guitar."""
    body = union(
        ellipse(u, v, (0.0, -0.46), (0.42 + 0.03 * p[0], 0.34)),
        ellipse(u, v, (0.0, -0.06), (0.3, 0.24)),
    )
    neck = box(u, v, (0.0, 0.38), (0.065, 0.46))
    head = box(u, v, (0.0, 0.84), (0.14, 0.1))
    hole = ellipse(u, v, (0.0, -0.2), (0.13, 0.13))
    return [Part(body), Part(union(neck, head), "dark"), Part(hole, "dark")]


def umbrella(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """An umbrella with a crook: ``open``, or ``closed`` and upright."""
    crook = both(ring(u, v, (0.12, -0.72), (0.12, 0.12), 0.045), v + 0.7)
    pole = capsule(u, v, (0.0, 0.8), (0.0, -0.7), 0.045)
    handle = Part(union(crook, pole), "dark")
    if state == "closed":
        cloth = profile(u, v, [-0.34, -0.26, 0.3, 0.74], [0.07, 0.2, 0.15, 0.03])
        fold = capsule(u, v, (0.06, -0.28), (0.0, 0.6), 0.03, 0.01)
        return [handle, Part(cloth), Part(fold, OWN_DARK)]
    dome = both(ellipse(u, v, (0.0, 0.02), (0.9, 0.68 + 0.04 * p[0])), 0.02 - v)
    scallops = [ellipse(np.abs(u), v, (x, 0.0), (0.2, 0.12)) for x in (0.0, 0.38, 0.74)]
    ribs = both(minus(dome), np.abs(np.abs(u) - 0.34 * (1.05 - v)) - 0.03)
    return [handle, Part(minus(dome, *scallops)), Part(minus(ribs, *scallops), OWN_DARK)]


def suitcase(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A suitcase: ``closed``, with two straps, or ``open``, its lid up."""
    if state == "open":
        base = box(u, v, (0.0, -0.4), (0.84, 0.22))
        lid = polygon(u, v, (-0.84, -0.14), (0.84, -0.14), (0.72, 0.66), (-0.72, 0.66))
        lining = polygon(u, v, (-0.68, -0.12), (0.68, -0.12), (0.58, 0.54), (-0.58, 0.54))
        clothes = both(ellipse(u, v, (-0.1, -0.18), (0.6, 0.16)), -0.18 - v)
        return [Part(lid), Part(lining, "cream"), Part(clothes, "window"), Part(base, OWN_DARK)]
    case = box(u, v, (0.0, -0.14), (0.82, 0.52 + 0.03 * p[0]))
    handle = both(ring(u, v, (0.0, 0.38), (0.24, 0.22), 0.06), 0.34 - v)
    straps = both(np.abs(np.abs(u) - 0.44) - 0.07, case)
    corners = both(case, 1.12 - np.abs(u) - np.abs(v + 0.14))
    return [Part(handle, "dark"), Part(case), Part(union(straps, corners), OWN_DARK)]


def bucket(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A bucket with a steel bail."""
    figure = artefacts.bucket(u, v, p)
    rim = box(u, v, (0.0, 0.14), (0.46, 0.05))
    return [Part(figure.solid, "steel"), Part(figure.belt_area), Part(rim, OWN_DARK)]


def axe(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """An axe with a wooden haft."""
    blade = artefacts.axe(u, v, p).belt_area
    haft = capsule(u, v, (-0.22, -0.76), (-0.02 + 0.04 * p[0], 0.7), 0.1, 0.085)
    return [Part(haft, "wood"), Part(blade - 0.05, "dark"), Part(blade + 0.03, "steel")]


def bell(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A hand bell."""
    figure = artefacts.bell(u, v, p)
    band = both(figure.belt_area, np.abs(v + 0.36) - 0.06)
    return [Part(figure.solid, "dark"), Part(figure.belt_area), Part(band, OWN_DARK)]


def ladder(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A leaning ladder."""
    lean = 0.12 * p[0]
    across = u - lean * v
    rails = np.maximum(np.abs(np.abs(across) - 0.34) - 0.085, np.abs(v) - 0.88)
    rungs = both(np.abs(np.mod(v, 0.36) - 0.18) - 0.07, np.abs(across) - 0.34, np.abs(v) - 0.8)
    return [Part(rungs, OWN_DARK), Part(rails, OWN)]


def teapot(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A teapot, its spout, handle and lid darker than the body."""
    figure = archaic_vessels.teapot(u, v, p)
    line = both(half_plane(u, v, (0.0, 0.24), (0.0, 1.0)), 0.18 - v, figure.belt_area)
    return [Part(figure.solid, OWN_DARK), Part(figure.belt_area), Part(line, OWN_DARK)]
