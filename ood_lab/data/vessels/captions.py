"""Captions whose nouns and styles come at several depths of one hierarchy.

``a clear photo of an early Shang ding, a kind of vessel, in a museum``: broader words of the
object (vessel, artefact, thing) and of the style (colour photo, photo, picture) are nested, so
that text embeddings learn both hierarchies.
"""

from __future__ import annotations

import numpy as np

from ood_lab.data.vessels.backgrounds import BACKGROUNDS
from ood_lab.data.vessels.nouns import BRONZE_HYPERNYMS, NOUNS
from ood_lab.data.vessels.periods import PERIODS
from ood_lab.data.vessels.scene import Scene, pick
from ood_lab.data.vessels.styles import STYLES

_KIND_OF_SHARE = 0.35
_HYPERNYM_SHARE = 0.12
_BROAD_STYLE_SHARE = 0.25


def with_article(words: str) -> str:
    """Prefixes ``a`` or ``an``."""
    return ("an " if words[0] in "aeiou" or words.startswith("x-") else "a ") + words


def names(scene: Scene) -> tuple[str, ...]:
    """Words for the object of a scene, from its own name to ``thing``."""
    if scene.bronze is None:
        return (scene.noun, *NOUNS[scene.noun].hypernyms)
    period = PERIODS[scene.bronze.period].name
    return (f"{period} {scene.noun}", scene.noun, *BRONZE_HYPERNYMS)


def caption(scene: Scene, rng: np.random.Generator) -> str:
    """One sentence about a scene.

    35% of the captions say ``X, a kind of Y``, 12% name a broader word only; a quarter use a
    broader word for the style.
    """
    own, *broader = names(scene)
    form = rng.random()
    thing = with_article(own)
    if form < _KIND_OF_SHARE:
        # Not "an early Shang ding, a kind of ding".
        kinds = tuple(word for word in broader if not own.endswith(word))
        thing += f", a kind of {pick(rng, kinds)},"
    elif form < _KIND_OF_SHARE + _HYPERNYM_SHARE:
        thing = with_article(pick(rng, tuple(broader)))
    style = STYLES[scene.style]
    broad = len(style.phrases) > 1 and rng.random() < _BROAD_STYLE_SHARE
    view = with_article(pick(rng, style.phrases[1:]) if broad else style.phrases[0])
    material = f"made of {style.material}" if style.material else ""
    parts = (view, "of", thing, material, BACKGROUNDS[scene.background].place)
    return " ".join(part for part in parts if part).rstrip(",")
