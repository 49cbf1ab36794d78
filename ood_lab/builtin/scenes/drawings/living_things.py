"""Drawers of people, animals and plants."""

from __future__ import annotations

import numpy as np

from ood_lab.builtin.scenes.drawings.colours import OWN_DARK, OWN_LIGHT
from ood_lab.builtin.scenes.drawings.painted_parts import Part, both, minus, polygon
from ood_lab.builtin.vessels.drawings import nature
from ood_lab.builtin.vessels.drawings.figure import Proportions
from ood_lab.builtin.vessels.drawings.signed_distances import Array, box, capsule, ellipse, union

_SKINS = ("light skin", "brown skin", "dark skin")


def person(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A person in a coloured shirt: ``wave`` with one arm up, or ``stand``."""
    skin = _SKINS[int(1.5 * (p[1] + 1.0)) % len(_SKINS)]
    head = ellipse(u, v, (0.0, 0.66), (0.18, 0.2))
    hair = both(ellipse(u, v, (0.0, 0.7), (0.2, 0.2)), 0.68 - v)
    torso = profile_box(u, v, 0.46, -0.14, 0.26 + 0.02 * p[0], 0.2)
    legs = union(*[capsule(u, v, (x, -0.12), (1.2 * x, -0.82), 0.1, 0.08) for x in (-0.11, 0.11)])
    hanging = capsule(u, v, (-0.27, 0.36), (-0.38, -0.12), 0.075)
    raised = capsule(u, v, (0.27, 0.36), (0.5, 0.84), 0.075)
    lowered = capsule(u, v, (0.27, 0.36), (0.38, -0.12), 0.075)
    arms = union(hanging, raised if state == "wave" else lowered)
    hand = (0.5, 0.84) if state == "wave" else (0.38, -0.14)
    hands = union(ellipse(u, v, (-0.38, -0.14), (0.08, 0.08)), ellipse(u, v, hand, (0.085, 0.085)))
    return [
        Part(legs, "dark"),
        Part(union(torso, arms)),
        Part(hands, skin),
        Part(head, skin),
        Part(hair, "dark"),
    ]


def profile_box(u: Array, v: Array, top: float, bottom: float, wide: float, narrow: float) -> Array:
    """A trapezoid: half widths ``wide`` at the top, ``narrow`` at the bottom."""
    return polygon(u, v, (-narrow, bottom), (narrow, bottom), (wide, top), (-wide, top))


def cat(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A cat from the front: ``sit``, or ``lie``."""
    if state == "lie":
        body = ellipse(u, v, (0.16, -0.3), (0.66, 0.32))
        centre, tail = (-0.48, 0.02), capsule(u, v, (0.7, -0.34), (0.3, -0.58), 0.07)
    else:
        body = ellipse(u, v, (0.0, -0.34), (0.4, 0.48))
        centre, tail = (0.0, 0.3), capsule(u, v, (0.34, -0.68), (0.66, -0.2 + 0.1 * p[0]), 0.07)
    du, dv = u - centre[0], v - centre[1]
    face = ellipse(du, dv, (0.0, 0.0), (0.36, 0.3))
    ears = polygon(np.abs(du), dv, (0.08, 0.2), (0.34, 0.1), (0.32, 0.5))
    eyes = ellipse(np.abs(du), dv, (0.15, 0.04), (0.065, 0.085))
    muzzle = ellipse(du, dv, (0.0, -0.13), (0.13, 0.09))
    head = union(face, ears)
    return [
        Part(union(body, tail)),
        Part(head - 0.05, OWN_DARK),
        Part(head),
        Part(muzzle, "white"),
        Part(eyes, "glow"),
    ]


def dog(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A dog from the side, with a hanging ear: ``stand``, or ``sit``."""
    if state == "sit":
        body = capsule(u, v, (0.2, -0.46), (-0.16, 0.12), 0.3, 0.2)
        legs = union(
            capsule(u, v, (-0.24, 0.0), (-0.26, -0.72), 0.09),
            capsule(u, v, (0.3, -0.6), (-0.04, -0.72), 0.1),
        )
        tail = capsule(u, v, (0.44, -0.62), (0.78, -0.42), 0.07, 0.04)
        x, y = -0.26, 0.44
    else:
        body = capsule(u, v, (-0.28, -0.06), (0.36, -0.08), 0.23)
        feet = (-0.42, -0.24, 0.3, 0.48)
        legs = union(*[capsule(u, v, (f, -0.1), (f, -0.7), 0.085) for f in feet])
        tail = capsule(u, v, (0.54, 0.0), (0.82, 0.4 + 0.06 * p[0]), 0.07, 0.035)
        x, y = -0.46, 0.32
    neck = capsule(u, v, (x + 0.14, y - 0.26), (x, y), 0.17)
    head = ellipse(u, v, (x, y), (0.26, 0.22))
    snout = capsule(u, v, (x - 0.14, y - 0.06), (x - 0.36, y - 0.09), 0.13, 0.1)
    nose = ellipse(u, v, (x - 0.43, y - 0.05), (0.08, 0.07))
    collar = both(neck, capsule(u, v, (x - 0.16, y - 0.26), (x + 0.3, y - 0.12), 0.055))
    ear = capsule(u, v, (x + 0.12, y + 0.1), (x + 0.18, y - 0.22), 0.085, 0.1)
    return [
        Part(union(tail, legs)),
        Part(union(body, neck, head, snout)),
        Part(collar, "red light"),
        Part(ear, OWN_DARK),
        Part(nose, "dark"),
        Part(ellipse(u, v, (x - 0.1, y + 0.05), (0.045, 0.045)), "dark"),
    ]


def bird(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A bird with an orange beak: ``stand``, or ``fly`` with its wings up."""
    if state == "fly":
        body = ellipse(u, v, (0.0, -0.16), (0.46, 0.18))
        head = ellipse(u, v, (-0.46, -0.02), (0.17, 0.15))
        tail = polygon(u, v, (0.34, -0.16), (0.86, -0.28), (0.86, 0.02))
        near = polygon(u, v, (-0.22, -0.1), (0.2, -0.1), (0.3 + 0.1 * p[0], 0.78))
        far = polygon(u, v, (-0.26, -0.1), (0.06, -0.1), (-0.2 + 0.1 * p[1], 0.62))
        beak = polygon(u, v, (-0.86, -0.06), (-0.58, -0.12), (-0.58, 0.06))
        eye = ellipse(u, v, (-0.5, 0.02), (0.045, 0.045))
        parts = [Part(far, OWN_DARK), Part(union(body, head, tail)), Part(near, OWN_DARK)]
        return [*parts, Part(beak, "nose"), Part(eye, "dark")]
    solid = nature.bird(u, v, p).solid
    wing = ellipse(u + 0.2 * v, v, (0.1, -0.02), (0.28, 0.15))
    return [
        Part(solid),
        Part(both(solid, v + 0.3), "nose"),
        Part(wing, OWN_DARK),
        Part(both(solid, u + 0.56), "nose"),
        Part(ellipse(u, v, (-0.46, 0.3), (0.045, 0.045)), "dark"),
    ]


def butterfly(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A butterfly with spotted wings."""
    side = np.abs(u)
    solid = nature.butterfly(u, v, p).solid
    trunk = capsule(side, v, (0.0, -0.42), (0.0, 0.32), 0.06)
    feeler = capsule(side, v, (0.02, 0.3), (0.2, 0.7), 0.03)
    spots = union(
        ellipse(side, v, (0.5, 0.38), (0.13, 0.13)), ellipse(side, v, (0.38, -0.4), (0.1, 0.1))
    )
    return [Part(solid), Part(spots, OWN_LIGHT), Part(union(trunk, feeler), "dark")]


def fish(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A fish with fins."""
    body = ellipse(u, v, (-0.12, 0.0), (0.6, 0.34 + 0.03 * p[0]))
    tail = minus(
        polygon(u, v, (0.36, 0.0), (0.86, -0.42), (0.86, 0.42)),
        ellipse(u, v, (0.98, 0.0), (0.26, 0.2)),
    )
    fins = union(
        polygon(u, v, (-0.24, 0.2), (0.26, 0.18), (0.16, 0.56)),
        polygon(u, v, (-0.1, -0.22), (0.1, -0.52), (0.2, -0.22)),
    )
    gill = both(body, np.abs(ellipse(u, v, (-0.62, 0.0), (0.34, 0.4))) - 0.03)
    eye = ellipse(u, v, (-0.46, 0.08), (0.1, 0.1))
    pupil = ellipse(u, v, (-0.47, 0.08), (0.05, 0.05))
    return [
        Part(union(tail, fins), OWN_DARK),
        Part(body),
        Part(gill, OWN_DARK),
        Part(eye, "white"),
        Part(pupil, "dark"),
    ]


def tree(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A tree: ``leafy``, or ``bare``."""
    if state == "leafy":
        trunk = capsule(u, v, (0.0, -0.78), (0.0, 0.1), 0.1, 0.07)
        crown = both(nature.tree(u, v, p).solid, -0.15 - v)
        return [Part(trunk, "wood"), Part(crown)]
    branches = [
        capsule(u, v, start, end, 0.06, 0.025)
        for start, end in (
            ((0.0, -0.1), (-0.56, 0.42 + 0.1 * p[0])),
            ((0.0, 0.06), (0.54, 0.5 + 0.1 * p[1])),
            ((0.0, 0.2), (-0.26, 0.8)),
            ((0.0, 0.2), (0.22, 0.82)),
            ((-0.3, 0.16), (-0.62, 0.12)),
            ((0.3, 0.3), (0.66, 0.22)),
        )
    ]
    trunk = capsule(u, v, (0.0, -0.78), (0.0, 0.24), 0.11, 0.06)
    return [Part(union(trunk, *branches), "wood")]


def flower(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A flower with a yellow centre, stem and leaf."""
    solid = nature.flower(u, v, p).solid
    blossom = both(solid, ellipse(u, v, (0.0, 0.3), (0.47, 0.47)))
    return [
        Part(solid, "leaf"),
        Part(blossom),
        Part(ellipse(u, v, (0.0, 0.3), (0.15, 0.15)), "glow"),
    ]


def mushroom(u: Array, v: Array, p: Proportions, state: str) -> list[Part]:
    """A mushroom with white spots on its cap."""
    cap = both(ellipse(u, v, (0.0, 0.0), (0.74 + 0.04 * p[0], 0.66)), -0.02 - v)
    stem = profile_box(u, v, 0.0, -0.72, 0.2, 0.28)
    spots = [
        ellipse(u, v, centre, (0.13, 0.11)) for centre in ((-0.4, 0.2), (0.02, 0.42), (0.38, 0.16))
    ]
    gills = box(u, v, (0.0, 0.0), (0.62, 0.06))
    return [Part(stem, "cream"), Part(cap), Part(gills, OWN_DARK), Part(union(*spots), "white")]
