"""Texts about vessels: every name of a thing and every wording of a style, to learn shift from."""

from __future__ import annotations

from ood_lab.builtin.vessels.covariate_styles import STYLES
from ood_lab.builtin.vessels.drawings.backgrounds import BACKGROUNDS
from ood_lab.builtin.vessels.nouns import BRONZE_HYPERNYMS, NOUNS
from ood_lab.builtin.vessels.periods import CATEGORIES, PERIODS


def _with_article(words: str) -> str:
    return ("an " if words[0] in "aeiou" or words.startswith("x-") else "a ") + words


def caption_labels() -> list[str]:
    """All names with their articles: dated bronzes, other things, broader words."""
    bronzes = [f"{period.name} {category}" for period in PERIODS for category in CATEGORIES]
    broader = [word for noun in NOUNS.values() for word in noun.hypernyms]
    words = dict.fromkeys([*bronzes, *CATEGORIES, *NOUNS, *BRONZE_HYPERNYMS, *broader])
    return [_with_article(word) for word in words]


def caption_templates() -> list[str]:
    """One caption a phrase of a style and background; ``{}`` for the thing."""
    templates = []
    for style in STYLES.values():
        material = f"made of {style.material}" if style.material else ""
        for background in style.backgrounds:
            place = BACKGROUNDS[background].place
            for phrase in style.phrases:
                parts = (_with_article(phrase), "of", "{}", material, place)
                templates.append(" ".join(part for part in parts if part))
    return list(dict.fromkeys(templates))
