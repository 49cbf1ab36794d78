"""From annotations and scores of image-text models to questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import without_keys
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.benchmarks.oodbench.division import UNCUT
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions.question_files import YES_NO, Question, Questions, meta_of
from ood_lab.lvlm.questions.question_forms import Form
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import Names, Row

_STEPS = "Yes or No? Let's break down the information step by step."
#: The two opposite questions about a category. The plain ones always have the article "a", before
#: vowels and plurals too.
WORDINGS: Mapping[Form, Names] = {
    "plain": {
        "affirmative": "Does this image contain a {c}? (yes or no)",
        "negative": "Does this image not contain a {c}? (yes or no)",
    },
    "cot": {
        "affirmative": f"Does this image contain {{c}}? {_STEPS}",
        "negative": f"Does this image not contain {{c}}? {_STEPS}",
    },
}

#: Basic-to-Advanced Progression: existence of c1, count of c2, more c1 than c2.
EXISTENCE = "Does this image contain a {c}? (yes or no)"
COUNTING = "How many {c} are there in the picture?"
LOGIC = (
    "Is the number of {c1} in the image greater than the number of {c2}? Answer with 'yes' or 'no'."
)


class AnnotationLookup:
    """Look-ups in annotations.

    Attributes:
        files: path of each image, by its id.
    """

    def __init__(self, annotations: Annotations) -> None:
        images, objects = annotations.images.set_index("image"), annotations.objects
        self.files = annotations.paths
        self._pixels = (images["width"].astype(float) * images["height"]).to_dict()
        self._levels = images[[name for name in LEVELS if name in images]].to_dict("index")
        self._places = images["place"].to_dict() if "place" in images else annotations.scenes
        known = {"count": ("area", "size"), "area": ("area", "max"), "crowd": ("crowd", "any")}
        if "semantic_level" in objects:
            known["object_semantic_level"] = ("semantic_level", "max")
        groups = objects.groupby(["image", "category"], observed=True, sort=False)
        self._objects: Mapping[Any, Row] = groups.agg(**known).to_dict("index")

    def of(self, image: int | str, category: str) -> Row:
        """What is annotated of a category in an image: ``count, area`` (of the largest), ``crowd``.

        With ``object_semantic_level``, where the source has levels of objects.
        """
        return self._objects.get((image, category), {"count": 0, "area": 0.0, "crowd": False})

    def levels(self, image: int | str) -> dict[str, int]:
        """Known levels of shift of an image."""
        return {str(name): int(value) for name, value in self._levels[image].items()}

    def of_pair(self, image: int | str, category: str) -> Fields:
        """Columns of ``meta``: how many there are, how large the largest is, and where it is."""
        results = without_keys(self.of(image, category), ("crowd",))
        share = results["area"] / max(self._pixels[image], 1.0)
        facts = {"count": results.pop("count"), "area": results.pop("area")}
        place = {"place": str(self._places[image])} if image in self._places else {}
        return {**facts, "area_share": round(share, 6), **results, **place, **self.levels(image)}


#: ``Question.task`` of the three questions of a BAP sample.
BAP_EXISTENCE, BAP_COUNTING, BAP_LOGIC = "bap_existence", "bap_counting", "bap_logic"
BAP_TASKS = (BAP_EXISTENCE, BAP_COUNTING, BAP_LOGIC)


def questions_of(
    pairs: pd.DataFrame,
    annotations: Annotations,
    *,
    seed: int,
    form: Form = "plain",
    parser: str = "default",
    bap: bool = True,
) -> Questions:
    """All questions about the drawn pairs, two a pair, then three a BAP sample.

    Args:
        pairs: see :meth:`~ood_lab.lvlm.benchmarks.oodbench.question_pairs.Pairing.draw`.
        annotations: the images and what is in them.
        seed: of the BAP samples.
        form: of the yes/no questions, ``plain`` or ``cot``.
        parser: that reads the answers to yes/no questions.
        bap: ask a BAP sample about an image of a split, where that has two categories.

    Raises:
        UserError: there is no pair to ask about.
    """
    if not len(pairs):
        raise UserError(
            f"{annotations.name} has no pair to ask about: no object is annotated in its "
            f"{len(annotations.images):,} images"
        )
    facts = AnnotationLookup(annotations)
    results = [q for pair in pairs.to_dict("records") for q in _pair(pair, facts, form, parser)]
    if bap:
        results += _bap(pairs, facts, parser, np.random.default_rng(seed))
    return results


def _pair(pair: Row, facts: AnnotationLookup, form: Form, parser: str) -> Iterator[Question]:
    image, category = pair["image"], str(pair["category"])
    meta = {**meta_of(pair), **facts.of_pair(image, category)}
    name = f"{image}/{category}"
    for kind, text in WORDINGS[form].items():
        right = bool(pair["present"]) == (kind == "affirmative")
        yield Question(
            question_id=f"{name}/{kind}",
            task=YES_NO,
            image=str(facts.files[image]),
            text=text.format(c=category),
            answer=YES if right else NO,
            parser=parser,
            pair_id=name,
            meta={**meta, "form": kind},
            reply="steps" if form == "cot" else "word",
        )


def _bap(
    pairs: pd.DataFrame, facts: AnnotationLookup, parser: str, rng: np.random.Generator
) -> Iterator[Question]:
    whole = {rest: split for split, rest in UNCUT.values()}
    known, sampled = defaultdict[Any, list[str]](list), set[Any]()
    for rows in (group for _, group in pairs.groupby(["split", "image"], sort=False)):
        split, image = rows["split"].iloc[0], rows["image"].iloc[0]
        # What was cut comes last, and adds to the categories of the cut split.
        place = whole.get(split, split), image
        names = known[place]
        names += [str(c) for c in rows["category"] if not facts.of(image, str(c))["crowd"]]
        orders = list(permutations(names, 2))
        numbers = rng.permutation(len(orders))
        if place in sampled or not orders:
            continue
        sampled.add(place)
        first, second = orders[numbers[0]]
        n, other = (facts.of(image, name)["count"] for name in (first, second))
        # Existence of the first, count of the second, and whether there are more of one.
        asked = (
            (BAP_EXISTENCE, EXISTENCE.format(c=first), YES if n else NO),
            (BAP_COUNTING, COUNTING.format(c=second), str(other)),
            (BAP_LOGIC, LOGIC.format(c1=first, c2=second), YES if n > other else NO),
        )
        sample = f"bap/{image}/{first}/{second}"
        about = {"split": str(split), "categories": [first, second], "counts": [n, other]}
        for task, text, answer in asked:
            yield Question(
                question_id=f"{sample}/{task}",
                task=task,
                image=str(facts.files[image]),
                text=text,
                answer=answer,
                parser="number" if task == BAP_COUNTING else parser,
                pair_id=sample,
                meta={**meta_of({"image": image}), **about, **facts.levels(image)},
            )
