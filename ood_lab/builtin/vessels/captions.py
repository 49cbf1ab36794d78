"""Captions whose nouns and styles come at several depths of one hierarchy.

``a clear photo of an early Shang ding, a kind of vessel, in a museum``: broader words of the
object (vessel, artefact, thing) and of the style (colour photo, photo, picture) are nested, so
that text embeddings learn both hierarchies.
"""

from __future__ import annotations

import numpy as np

from ood_lab.builtin.vessels.covariate_styles import STYLES
from ood_lab.builtin.vessels.drawings.backgrounds import BACKGROUNDS
from ood_lab.builtin.vessels.nouns import BRONZE_HYPERNYMS, NOUNS
from ood_lab.builtin.vessels.periods import CATEGORIES, PERIODS
from ood_lab.builtin.vessels.scene import Scene, pick

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
    phrase = pick(rng, style.phrases[1:]) if broad else style.phrases[0]
    return _sentence(phrase, thing, style.material, BACKGROUNDS[scene.background].place)


def style_captions(style: str, thing: str) -> tuple[str, ...]:
    """Captions of ``thing`` in a style by its own name, one a background of the style."""
    drawn = STYLES[style]
    return tuple(
        _sentence(drawn.phrases[0], with_article(thing), drawn.material, BACKGROUNDS[b].place)
        for b in drawn.backgrounds
    )


def _sentence(phrase: str, thing: str, material: str, place: str) -> str:
    made = f"made of {material}" if material else ""
    parts = (with_article(phrase), "of", thing, made, place)
    return " ".join(part for part in parts if part).rstrip(",")


def caption_labels() -> list[str]:
    """Everything that a caption names, with its article: dated bronzes, things, broader words."""
    bronzes = [f"{period.name} {category}" for period in PERIODS for category in CATEGORIES]
    broader = [word for noun in NOUNS.values() for word in noun.hypernyms]
    words = dict.fromkeys([*bronzes, *CATEGORIES, *NOUNS, *BRONZE_HYPERNYMS, *broader])
    return [with_article(word) for word in words]


def caption_templates() -> list[str]:
    """One caption a style and background, broader phrases for styles too; ``{}`` for the thing."""
    found = []
    for style in STYLES.values():
        for background in style.backgrounds:
            place = BACKGROUNDS[background].place
            found += [_sentence(p, "{}", style.material, place) for p in style.phrases]
    return list(dict.fromkeys(found))
