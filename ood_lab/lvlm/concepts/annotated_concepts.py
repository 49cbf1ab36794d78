"""Concepts of annotated images: categories, places and attributes."""

from __future__ import annotations

from itertools import permutations

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.concepts.concepts import ENTITY, ENVIRONMENT, Attribute, Concepts
from ood_lab.lvlm.concepts.hallucination_candidates import company

#: Attribute of a thing that is an action; every other one is a state.
_ACTION = "action"


def concepts_of(annotations: Annotations) -> Concepts:
    """Concepts of annotated images.

    Categories are entities; the ``place`` of an image, where the source has it, an environment.
    An attribute with two observed values or more gives every ordered pair of them. The
    hallucination candidates of an image are the concepts that most often accompany what it shows,
    over all images, and are not in it.

    Raises:
        UserError: fewer than two concepts ever meet in an image.
    """
    shown: dict[int | str, list[str]] = {image: [] for image in annotations.images["image"]}
    objects = annotations.objects
    for image, category in zip(objects["image"], objects["category"].astype(str), strict=True):
        shown[image].append(category)
    places = annotations.scenes
    truth = [
        sorted(set(names)) + ([places[image]] if image in places else [])
        for image, names in shown.items()
    ]
    if not any(len(names) > 1 for names in truth):
        raise UserError(f"{annotations.name}: no two concepts are ever seen in one image")
    types = dict.fromkeys(places.values(), ENVIRONMENT) | dict.fromkeys(
        annotations.categories, ENTITY
    )
    states, actions = _attributes(annotations)
    return Concepts(
        name=annotations.name,
        truth=truth,
        hallu=company(truth),
        types=types,
        states=states,
        actions=actions,
    )


def _attributes(
    annotations: Annotations,
) -> tuple[dict[str, list[Attribute]], dict[str, list[Attribute]]]:
    objects = annotations.objects
    values: dict[tuple[str, str], set[str]] = {}
    for category, known in zip(objects["category"].astype(str), objects["attributes"], strict=True):
        for key, value in known.items():
            values.setdefault((category, key), set()).add(value)
    states: dict[str, list[Attribute]] = {}
    actions: dict[str, list[Attribute]] = {}
    for (category, key), words in sorted(values.items()):
        into = actions if key == _ACTION else states
        into.setdefault(category, []).extend(Attribute(*p) for p in permutations(sorted(words), 2))
    return states, actions
